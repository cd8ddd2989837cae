"""The law under a grammar: plain decoding under the same mask, on chains, trees and batches, by every verifier.

The exact distribution is enumerated with new matchers, which were never moved along drafts.
"""

from collections import Counter
from typing import Any

import pytest
import torch

from sampling.grammar import matching
from sampling.grammar.matching import Matching
from tests.conformance import suite
from tests.conformance.matrix import NAMES, case
from tests.conformance.test_text_processors import JUDGES
from tests.conformance.toy import SHORT, toy_pair
from tests.grammars import END, GRAMMARS, masked, under
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor, NucleusProcessor

LENGTH = 4
STOP = frozenset({END})
DRAFTERS = ["model", "sampled tree", "point tree", "suffix tree"]
SAMPLING = MultinomialProcessor(1.0)


def exact(grammar: str, processor: LogitsProcessor = SAMPLING) -> dict[tuple[int, ...], float]:
    """Probability of every output of at most LENGTH tokens."""
    runner, found = toy_pair().recomputing().target, dict[tuple[int, ...], float]()
    open_paths: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_paths:
        path, mass = open_paths.pop()
        if len(path) == LENGTH or END in path:
            found[path] = mass
            continue
        runner.crop(0)
        p = processor(masked(grammar, path, runner.forward([*SHORT, *path], rows=1).logits))[0].tolist()
        open_paths += [((*path, token), mass * chance) for token, chance in enumerate(p) if chance]
    return found


def check(
    grammar: str,
    drafter: str,
    judge: str | None = None,
    processor: LogitsProcessor = SAMPLING,
    runs: int = suite.FEW_RUNS,
) -> None:
    asked = case(drafter) if judge is None else case(drafter, verifier=judge)
    ends = suite.run_many(asked, toy_pair(stop=STOP), under(grammar, processor), LENGTH, runs, SHORT)
    counts = Counter(tuple(seq.tokens[seq.prompt_length :]) for seq, _ in ends)
    assert counts.total() == runs, "a text failed"
    laws = exact(grammar, processor)
    assert set(counts) <= set(laws), "chi-square: an impossible output"
    suite.check_counts(counts, laws)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_keeps_its_law_on_chains_and_trees(name: str, drafter: str) -> None:
    check(GRAMMARS[name], drafter)


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_verifier_keeps_the_law_of_a_grammar(judge: str, drafter: str) -> None:
    check(GRAMMARS["end late"], drafter, judge)


def test_the_mask_comes_before_what_cuts_the_distribution() -> None:
    check(GRAMMARS["nested"], "model", processor=NucleusProcessor(1.3, 0.8))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("name", GRAMMARS)
def test_greedy_ids_are_those_of_plain_decoding_under_the_mask(name: str, drafter: str) -> None:
    (best,) = exact(GRAMMARS[name], GreedyProcessor())
    events = suite.run(case(drafter), toy_pair(stop=STOP), under(GRAMMARS[name], GreedyProcessor()), LENGTH, 0, SHORT)
    assert tuple(suite.output(events)) == best


def test_texts_of_a_batch_have_grammars_of_their_own() -> None:
    from sampling.batch import Batch, Request, decode_many
    from sampling.pair.share import shared_runner  # noqa: F401

    pair, one = toy_pair(stop=STOP), case("model")
    memo, target = suite.memorised(pair)
    batch = Batch(target, one.drafter(memo), one.gamma, one.verifier(), 8)
    names = [*GRAMMARS] * 4
    requests = [
        Request([*SHORT], under(GRAMMARS[name], SAMPLING), LENGTH, seed, STOP, tag=(name, seed))
        for seed, name in enumerate(names)
    ]
    outputs: dict[Any, list[int]] = {}
    for live, event in decode_many(batch, requests):
        if isinstance(event, Round):
            outputs.setdefault(live.request.tag, []).extend(event.emitted)
    for (name, seed), output in outputs.items():
        alone = suite.run(one, toy_pair(stop=STOP), under(GRAMMARS[name], SAMPLING), LENGTH, seed, SHORT)
        assert output == suite.output(alone), name
    assert len(outputs) == len(names)


def _moved_by_drafts(self: Matching, output: Any) -> None:
    if self._walked:  # what was drafted stays, whether it was accepted or not
        self._read, self._walked, self._root = len(output), [], None
        return
    bring_up_to(self, output)


def _bonus_free(self: Any, logits: Any, paths: Any) -> None:
    last = logits[-1].clone()
    change(self, logits, paths)
    if len(logits) > 1:
        logits[-1] = last


def _end_early(self: Matching, path: Any, over: bool) -> Any:
    place = found(self, path, over)
    place.mask = place.mask.copy()
    place.mask[END] = True
    return place


def _own_row_masked_by_its_parent(self: Any, logits: Any, paths: Any) -> None:
    for text in paths.texts:
        del text[-1:]
    change(self, logits, paths)


bring_up_to, found = Matching.bring_up_to, Matching._found
from sampling.grammar.constraint import TextConstraint  # noqa: E402

change = TextConstraint.change
FAULTS = {
    "the matcher moved by rejected drafts": (Matching, "bring_up_to", _moved_by_drafts),
    "the bonus token not masked": (TextConstraint, "change", _bonus_free),
    "the end allowed too early": (Matching, "_found", _end_early),
    "a row masked by its parent's place": (TextConstraint, "change", _own_row_masked_by_its_parent),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_break_the_law(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = FAULTS[fault]
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError, match=r"chi-square|a text failed"):
        check(GRAMMARS["end late"], "model", runs=suite.RUNS)


def test_no_drafted_token_is_one_that_the_grammar_forbids() -> None:
    """Drafters draw from their masked distribution, and copies are cut before the first forbidden token."""
    assert matching and torch
    for drafter in ("model", "suffix", "suffix tree", "ngram", "prompt_lookup"):
        events = suite.run(case(drafter), toy_pair(stop=STOP), under("regex:(a|b)+", SAMPLING), 24, 3, SHORT * 3)
        rounds = [event for event in events if isinstance(event, Round)]
        assert all(token in (0, 1, 2, END) for round in rounds for token in round.drafts), drafter


@pytest.mark.parametrize("drafter", [name for name in NAMES if name not in ("none", "staged")])
def test_every_drafter_keeps_greedy_ids_under_a_grammar(drafter: str) -> None:
    (best,) = exact(GRAMMARS["letters"], GreedyProcessor())
    pair = toy_pair(stop=STOP)
    events = suite.run(case(drafter), pair, under(GRAMMARS["letters"], GreedyProcessor()), LENGTH, 0, SHORT)
    assert tuple(suite.output(events)) == best
