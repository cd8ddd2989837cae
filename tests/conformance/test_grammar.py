"""The law under a grammar: plain decoding under the same mask, on chains, trees and batches, by every verifier.

The exact distribution is enumerated with new matchers, which were never moved along drafts.
"""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sampling.batch import Batch, decode_many
from sampling.grammar.constraint import TextConstraint
from sampling.grammar.matching import Matching
from sampling.methods.tables import DRAFTERS
from sampling.proof.memo import memorised
from sampling.scheduling.live_text import Request
from tests.conformance import suite
from tests.conformance.matrix import NAMES, case
from tests.conformance.suite import Case
from tests.conformance.test_text_processors import JUDGES
from tests.conformance.toy import SHORT, toy_pair
from tests.grammars import END, GRAMMARS, masked, under
from utils.events import FORCED, Finished, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor, NucleusProcessor

LENGTH = 4
STOP = frozenset({END})
FIRST = "forced, else model"
WAYS = ["model", "sampled tree", "point tree", "suffix tree", FIRST]
SAMPLING, GREEDY = MultinomialProcessor(1.0), GreedyProcessor()


@cache
def exact(grammar: str, processor: LogitsProcessor = SAMPLING) -> dict[tuple[int, ...], float]:
    """Probability of every output of at most LENGTH tokens."""
    runner, found = toy_pair().recomputing().target, dict[tuple[int, ...], float]()
    waiting: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while waiting:
        path, mass = waiting.pop()
        if len(path) == LENGTH or END in path:
            found[path] = mass
            continue
        runner.crop(0)
        p = processor(masked(grammar, path, runner.forward([*SHORT, *path], rows=1).logits))[0].tolist()
        waiting += [((*path, token), mass * chance) for token, chance in enumerate(p) if chance]
    return found


def _case(drafter: str) -> Case:
    """A case of the matrix, or what a grammar forces before the drafter model."""
    if drafter != FIRST:
        return case(drafter)
    return replace(case("model"), drafter=lambda pair: DRAFTERS["grammar"].build(pair, {"grammar_else": "model"}))


def check(
    grammar: str,
    drafter: str,
    judge: str | None = None,
    processor: LogitsProcessor = SAMPLING,
    runs: int = suite.FEW_RUNS,
) -> None:
    asked = _case(drafter) if judge is None else case(drafter, verifier=judge)
    ends = suite.run_many(asked, toy_pair(stop=STOP), under(grammar, processor), LENGTH, runs, SHORT)
    counts, law = Counter(tuple(seq.tokens[seq.prompt_length :]) for seq, _ in ends), exact(grammar, processor)
    assert counts.total() == runs, "a text failed"
    assert counts.keys() <= law.keys(), "an impossible text"
    suite.check_counts(counts, law)


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_keeps_its_law_on_chains_and_trees(name: str) -> None:
    """On a chain or a tree, in turn; each form of a draft meets one of them below."""
    check(GRAMMARS[name], ("model", "sampled tree")[[*GRAMMARS].index(name) % 2])


@pytest.mark.parametrize("drafter", WAYS)
def test_every_form_of_a_draft_keeps_the_law_of_a_grammar(drafter: str) -> None:
    check(GRAMMARS["forced"], drafter)


@pytest.mark.parametrize("judge", JUDGES)
def test_every_verifier_keeps_the_law_of_a_grammar(judge: str) -> None:
    for drafter in ("model", "sampled tree"):
        check(GRAMMARS["end late"], drafter, judge)


def test_the_mask_comes_before_what_cuts_the_distribution() -> None:
    check(GRAMMARS["nested"], "model", processor=NucleusProcessor(1.3, 0.8))


@pytest.mark.parametrize("drafter", [name for name in (*NAMES, FIRST) if name != "none"])
def test_greedy_ids_are_those_of_plain_decoding_under_the_mask(drafter: str) -> None:
    for name in ("letters", "forced"):
        (best,) = exact(GRAMMARS[name], GREEDY)
        greedy = under(GRAMMARS[name], GREEDY)
        assert tuple(suite.output(suite.run(_case(drafter), toy_pair(stop=STOP), greedy, LENGTH, 0, SHORT))) == best


def test_texts_of_a_batch_have_grammars_of_their_own() -> None:
    one, (memo, target) = case("model"), memorised(toy_pair(stop=STOP))
    batch = Batch(target, one.drafter(memo), one.gamma, one.verifier(), 4)
    requests = [
        Request([*SHORT], under(GRAMMARS[name], SAMPLING), LENGTH, seed, STOP, tag=name)
        for seed, name in enumerate(GRAMMARS)
    ]
    outputs = {
        live.request.tag: live.seq.tokens[len(SHORT) :]
        for live, event in decode_many(batch, requests)
        if isinstance(event, Finished)
    }
    assert outputs.keys() == GRAMMARS.keys()
    for seed, name in enumerate(GRAMMARS):
        alone = suite.run(one, toy_pair(stop=STOP), under(GRAMMARS[name], SAMPLING), LENGTH, seed, SHORT)
        assert outputs[name] == suite.output(alone), name


def test_forced_tokens_are_drafted_and_accepted() -> None:
    rounds = _rounds(FIRST, "regex:abcabc(a|b)", length=6)
    assert rounds[0].source == FORCED and rounds[0].drafts[:2] == (2, 3) and rounds[0].accepted == len(rounds[0].drafts)
    assert {round.source for round in rounds[1:]} <= {"model", FORCED}


@pytest.mark.parametrize("drafter", ["model", "suffix", "suffix tree", "ngram", "prompt_lookup", "recycling", "auto"])
def test_no_draft_is_one_that_the_grammar_forbids(drafter: str) -> None:
    """Drafters draw from their masked distribution, and copies are cut before the first forbidden token."""
    rounds = _rounds(drafter, "regex:(a|b)+", length=16)
    drafts = [token for round in rounds for token in round.drafts]
    assert drafts and {*drafts} <= {0, 1, 2, END}


def test_nothing_is_drafted_behind_the_end() -> None:
    for round in _rounds("model", GRAMMARS["letters"], length=16):
        assert END not in round.drafts[:-1]


def _rounds(drafter: str, grammar: str, length: int) -> list[Round]:
    prompt = (*SHORT, 0, 1, 3, 0, 1, 0, 1, 3, 0, 1)
    events = suite.run(_case(drafter), toy_pair(stop=STOP), under(grammar, SAMPLING), length, 3, prompt)
    return [event for event in events if isinstance(event, Round)]


def _moved_by_drafts(matching: Matching, output: Any) -> None:
    if matching._walked:  # what was drafted stays, whether it was accepted or not
        matching._read, matching._walked, matching._root = len(output), [], None
    else:
        bring_up_to(matching, output)


def _bonus_as_it_was(constraint: TextConstraint, logits: Any, paths: Any) -> None:
    last = logits[-1].clone()
    change(constraint, logits, paths)
    if len(logits) > 1:
        logits[-1] = last


def _end_too_early(matching: Matching, path: Any, over: bool) -> Any:
    place = found(matching, path, over)
    place.mask = place.mask.copy()
    place.mask[END] = True
    return place


def _place_of_the_parent(constraint: TextConstraint, logits: Any, paths: Any) -> None:
    for text in paths.texts:
        del text[-1:]
    change(constraint, logits, paths)


bring_up_to, found, change = Matching.bring_up_to, Matching._found, TextConstraint.change
FAULTS = {
    "the matcher moved by rejected drafts": (Matching, "bring_up_to", _moved_by_drafts),
    "the bonus token not masked": (TextConstraint, "change", _bonus_as_it_was),
    "the end allowed too early": (Matching, "_found", _end_too_early),
    "a row masked by the place of its parent": (TextConstraint, "change", _place_of_the_parent),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = FAULTS[fault]
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError, match=r"a text failed|an impossible text|chi-square"):
        check(GRAMMARS["end late"], "model")
