"""The law under processors of the text and cut-offs: every one on chains and trees, in batches, and every verifier.

The exact distribution is computed by transformers' own processors along each path.
"""

from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch

from sampling.methods.choices import TEXT_PROCESSORS, make_processor
from sampling.methods.settings import PARAMETERS
from sampling.methods.verifiers import VERIFIERS
from sampling.processors import text_processors, with_text
from sampling.processors.paths import Committed, Paths
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.toy import SHORT, toy_pair
from tests.processors import theirs
from utils.logits_processor import MultinomialProcessor

LENGTH = 3
CASES = [
    "multinomial 1 repetition=1.8", "multinomial 1 frequency=1.2", "multinomial 1 presence=1.5",
    "multinomial 1 no_repeat_ngram=2", "multinomial 1 logit_bias=2:1.5/0:-1", "multinomial 1 banned=3",
    "multinomial 1 min_tokens=2", "multinomial 1 forced=5",
    "nucleus 1.2 0.9 repetition=1.5 no_repeat_ngram=2 min_p=0.1",
]  # fmt: skip
CUTS = ["min_p=0.2", "typical_p=0.7", "epsilon=0.1", "eta=0.3", "top_n_sigma=1"]
DRAFTERS = ["model", "sampled tree", "suffix tree"]
JUDGES = [name for name in VERIFIERS if VERIFIERS[name].build(None, {}).lossless(MultinomialProcessor(1.0))]


@cache
def exact(text: str) -> dict[tuple[int, ...], float]:
    """Probability of every continuation; what stands behind a token that ends the text is left out."""
    runner = toy_pair().recomputing().target
    stop, found = tuple(stop_of(text)), dict[tuple[int, ...], float]()
    waiting: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while waiting:
        path, mass = waiting.pop()
        if len(path) == LENGTH or (path and path[-1] in stop):
            found[path] = mass
            continue
        runner.crop(0)
        tokens = [*SHORT, *path]
        p = theirs(text, runner.forward(tokens, rows=1).logits, tokens, len(SHORT), stop)[0].tolist()
        waiting += [((*path, token), mass * chance) for token, chance in enumerate(p)]
    return found


def stop_of(text: str) -> frozenset[int]:
    """A token that ends texts, where that makes a difference."""
    return frozenset({2}) if "min_tokens" in text else frozenset()


def check(text: str, drafter: str, judge: str | None = None, runs: int = suite.FEW_RUNS) -> None:
    processor = make_processor(PARAMETERS["processor"].parse(text))
    asked = case(drafter) if judge is None else case(drafter, verifier=judge)
    ends = suite.run_many(asked, toy_pair(stop=stop_of(text)), processor, LENGTH, runs, SHORT)
    suite.check_counts(Counter(tuple(seq.tokens[seq.prompt_length :]) for seq, _ in ends), exact(text))


@pytest.mark.parametrize(
    ("text", "drafter"), [(text, one) for at, text in enumerate(CASES) for one in ("model", DRAFTERS[1 + at % 2])]
)
def test_every_processor_keeps_its_law_on_chains_and_trees(text: str, drafter: str) -> None:
    """On a chain, and on a tree that is drawn or copied, in turn."""
    check(text, drafter)


@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_off_keeps_its_law(cut: str) -> None:
    """A row is cut by itself: on chains and trees in turn."""
    check(f"multinomial 1 {cut}", DRAFTERS[CUTS.index(cut) % 2])


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_verifier_keeps_the_law_of_a_penalised_text(judge: str, drafter: str) -> None:
    check("multinomial 1 repetition=1.8 frequency=0.8 no_repeat_ngram=2", drafter, judge)


def test_every_processor_of_the_table_is_here() -> None:
    assert all(any(f"{name}=" in text for text in CASES) for name in TEXT_PROCESSORS)


def _whole_draft_at_once(committed: Committed, proposal: Any) -> Paths:
    paths = of_round(committed, proposal)
    return Paths(committed, paths.drafts, torch.ones_like(paths.on_path))


def _no_draft_counts(committed: Committed, proposal: Any) -> Paths:
    paths = of_round(committed, proposal)
    return Paths(committed, paths.drafts, torch.zeros_like(paths.on_path))


def _siblings_count(committed: Committed, proposal: Any) -> Paths:
    paths = of_round(committed, proposal)
    if proposal.parents is None:
        return paths
    return Paths(committed, paths.drafts, torch.ones_like(paths.on_path).tril(-1) | paths.on_path)


def _counted_twice(committed: Committed, tokens: Any) -> None:
    before = len(committed.tokens)
    bring_up_to(committed, tokens)
    if len(committed.tokens) > before > 0:
        committed.counts[:, committed.tokens[before:]] += 1.0


def _rejected_stay(changes: Any, tokens: Any, proposal: Any, logits: Any) -> Any:
    found = of_changes(changes, tokens, proposal, logits)
    changes._committed.counts[:, proposal.tokens] += 1.0
    return found


of_round, bring_up_to, of_changes = Paths.of_round, Committed.bring_up_to, with_text.TextChanges.of_round
FAULTS = {
    "the whole draft on its first row": (Paths, "of_round", staticmethod(_whole_draft_at_once), "model"),
    "no draft counted": (Paths, "of_round", staticmethod(_no_draft_counts), "model"),
    "siblings counted": (Paths, "of_round", staticmethod(_siblings_count), "sampled tree"),
    "counted twice after it was accepted": (Committed, "bring_up_to", _counted_twice, "model"),
    "counted although it was rejected": (with_text.TextChanges, "of_round", _rejected_stay, "model"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_break_the_law(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong, drafter = FAULTS[fault]
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError, match="chi-square"):
        check("multinomial 1 frequency=2", drafter, runs=2 * suite.RUNS)


def test_a_cut_before_the_temperature_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    from sampling.processors.cutoffs import CutProcessor

    def early(processor: CutProcessor, logits: torch.Tensor) -> torch.Tensor:
        stays = processor.cutoffs[0].stays(logits.softmax(-1))
        return processor.processor(logits.masked_fill(~stays, -torch.inf))

    check("multinomial 2 min_p=0.3", "model")
    monkeypatch.setattr(CutProcessor, "__call__", early)
    with pytest.raises(AssertionError, match="chi-square"):
        check("multinomial 2 min_p=0.3", "model", runs=suite.RUNS)


def test_the_table_names_what_it_loads() -> None:
    assert all(part.load().__module__ == text_processors.__name__ for part in TEXT_PROCESSORS.values())
