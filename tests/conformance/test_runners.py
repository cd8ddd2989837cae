"""The suite over a lean model whose forwards have fixed shapes (test_batches.py has those that follow the text).

Whoever keeps what a fixed forward gave for too long, or reads a row that does not count, fails here.
"""

from functools import cache
from typing import Any

import pytest

from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, WholeRunner
from sampling.methods.verifiers import VERIFIERS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.verify import graphed
from tests.conformance import suite
from tests.conformance.matrix import case, ways
from tests.conformance.test_tables import LEARN_FROM_VERDICTS
from tests.conformance.toy import VOCAB, WINDOW
from tests.heads import CachingPair, random_heads
from tests.tiny import WIDE, tiny_llama
from utils.logits_processor import LogitsProcessor, MultinomialProcessor, NucleusProcessor, TopKNucleusProcessor
from utils.numbers import random_numbers

LAYERS = 2


@cache
def weights(seed: int) -> LeanModel:
    return tiny_llama(seed, VOCAB, LAYERS, WINDOW)


def lean_pair(fixed: bool) -> Pair:
    """A target and a drafter that disagrees with it, with heads for both."""
    target, drafter = (runner(weights(seed), fixed) for seed in (0, 1))
    info = ModelInfo("lean", "cpu", "float32", graphs=fixed)
    heads = random_heads(WIDE["hidden_size"], LAYERS, WINDOW, (0, 1, 2, 4, 5), VOCAB)
    return CachingPair(target, drafter, None, frozenset(), info, info, heads=heads, drafter_heads=heads)  # type: ignore[arg-type]


def runner(model: LeanModel, fixed: bool) -> WholeRunner:
    return ModelRunner.with_graphs(model) if fixed else ModelRunner(model)


@pytest.mark.parametrize("drafter", ways())
def test_greedy_output_is_that_of_autoregression(drafter: str) -> None:
    suite.check_greedy(case(drafter), lean_pair(fixed=True), length=20, prompts=2)


@pytest.mark.parametrize("drafter", [name for name in ways() if name not in LEARN_FROM_VERDICTS])
def test_every_proposal_equals_a_redraft_without_cache(drafter: str) -> None:
    suite.check_redraft(case(drafter), lean_pair(fixed=True), length=16)


def drawn(drafter: str, fixed: bool, processor: LogitsProcessor, verifier: str = "rejection") -> list[list[int]]:
    """Texts of a few seeds."""
    pair, one = lean_pair(fixed), case(drafter, verifier=verifier)
    return [suite.output(suite.run(one, pair, processor, 8, seed)) for seed in range(4)]


@pytest.mark.parametrize("drafter", ["model", "eagle", "mtp dynamic tree", "suffix tree", "staged eagle dynamic"])
def test_drawn_texts_are_those_of_forwards_that_follow_the_text(drafter: str) -> None:
    """Whose law other tests prove."""
    for processor in (MultinomialProcessor(1.0), NucleusProcessor(0.8, 0.9)):
        assert drawn(drafter, True, processor) == drawn(drafter, False, processor)


def test_coins_that_are_used_twice_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: numbers that were drawn for an earlier round."""
    earlier: dict[Any, Any] = {}

    def again(asked: Any, *given: Any) -> Any:
        return earlier.setdefault(tuple(asked), random_numbers.drawn(asked, *given))

    processor = TopKNucleusProcessor(1.0, 3, 1.0)
    assert drawn("none", True, processor) == drawn("none", False, processor)
    monkeypatch.setattr(graphed, "drawn", again)
    assert drawn("none", True, processor) != drawn("none", False, processor)


def test_a_verdict_is_the_same_with_a_graph_and_without() -> None:
    """The same coins in the same order, for every verifier and both forms of proposals."""
    for drafter in ("none", "model", "eagle dynamic tree", "suffix tree"):
        for name in VERIFIERS:
            expected = drawn(drafter, False, NucleusProcessor(0.8, 0.9), name)
            assert drawn(drafter, True, NucleusProcessor(0.8, 0.9), name) == expected, (drafter, name)
