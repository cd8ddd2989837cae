"""The suite over a lean model on either runner: forwards that follow the text, and forwards of fixed shapes.

Whoever keeps what a fixed forward gave for too long, or reads a row that does not count, fails here.
"""

from functools import cache
from typing import Any

import pytest

from sampling.forward.graphs.static import StaticRunner
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, WholeRunner
from sampling.methods.tables import VERIFIERS
from sampling.pair.pair import ModelInfo, Pair
from sampling.verify import graphed
from tests.conformance import suite
from tests.conformance.matrix import NAMES, case
from tests.conformance.test_tables import LEARN_FROM_VERDICTS
from tests.conformance.toy import VOCAB, WINDOW
from tests.heads import random_heads
from tests.tiny import WIDE, tiny_llama
from utils.logits_processor import MultinomialProcessor, NucleusProcessor, TopKNucleusProcessor
from utils.random_numbers import draw_all

RUNNERS = pytest.mark.parametrize("fixed", [False, True], ids=["dynamic", "fixed"])
LAYERS = 2


@cache
def weights(seed: int) -> LeanModel:
    return tiny_llama(seed, VOCAB, LAYERS, WINDOW)


def lean_pair(fixed: bool) -> Pair:
    """A target and a drafter that disagrees with it, with heads for both."""
    target, drafter = (runner(weights(seed), fixed) for seed in (0, 1))
    info = ModelInfo("lean", "cpu", "float32", graphs=fixed)
    heads = random_heads(WIDE["hidden_size"], LAYERS, WINDOW, (0, 1, 2, 4, 5), VOCAB)
    return Pair(target, drafter, None, frozenset(), info, info, heads=heads, drafter_heads=heads)  # type: ignore[arg-type]


def runner(model: LeanModel, fixed: bool) -> WholeRunner:
    return StaticRunner(model) if fixed else ModelRunner(model)


@RUNNERS
@pytest.mark.parametrize("drafter", NAMES)
def test_greedy_output_is_that_of_autoregression(drafter: str, fixed: bool) -> None:
    suite.check_greedy(case(drafter), lean_pair(fixed))


@pytest.mark.parametrize("drafter", [name for name in NAMES if name not in LEARN_FROM_VERDICTS])
def test_every_proposal_equals_a_redraft_without_cache(drafter: str) -> None:
    suite.check_redraft(case(drafter), lean_pair(fixed=True))


@RUNNERS
@pytest.mark.parametrize("drafter", ["model", "eagle", "mtp dynamic tree", "suffix tree"])
def test_sampled_output_has_the_targets_distribution(drafter: str, fixed: bool) -> None:
    suite.check_distribution(case(drafter), lean_pair(fixed), MultinomialProcessor(1.0))


def test_a_cut_distribution_is_kept() -> None:
    suite.check_distribution(case("staged eagle dynamic"), lean_pair(fixed=True), NucleusProcessor(0.8, 0.9))


def test_coins_that_are_used_twice_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: numbers that were drawn for an earlier round."""
    earlier: dict[Any, Any] = {}

    def again(asked: Any, *given: Any) -> Any:
        return earlier.setdefault(tuple(asked), draw_all(asked, *given))

    processor = TopKNucleusProcessor(1.0, 3, 1.0)
    suite.check_distribution(case("none"), lean_pair(fixed=True), processor, length=3)
    monkeypatch.setattr(graphed, "draw_all", again)
    with pytest.raises(AssertionError):
        suite.check_distribution(case("none"), lean_pair(fixed=True), processor, length=3)


@RUNNERS
def test_a_verdict_is_the_same_with_a_graph_and_without(fixed: bool) -> None:
    """The same coins in the same order, for every verifier and both forms of proposals."""
    pair, plain = lean_pair(fixed), lean_pair(fixed=False)
    for drafter in ("none", "model", "eagle dynamic tree", "suffix tree"):
        for name in VERIFIERS:
            one, other = (
                suite.run(case(drafter, verifier=name), made, NucleusProcessor(0.8, 0.9), 16, 3)
                for made in (pair, plain)
            )
            assert suite.output(one) == suite.output(other), (drafter, name)
