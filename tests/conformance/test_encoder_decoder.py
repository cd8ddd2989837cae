"""Encoder-decoder models through the same suite: T5 with every drafter, BART and Marian with one of each kind.

The suite's prompt is what the encoder reads; the text is the decoder's.
"""

from dataclasses import replace

import pytest

from egag.length_rule import FixedGamma
from sampling.drafter import Drafter, proposal_of
from sampling.methods.tables import DRAFTERS, HEADS
from sampling.pair.pair import Pair
from sampling.proof.memo import MemoRunner
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.test_tables import LEARN_FROM_VERDICTS
from tests.conformance.toy import PROMPT, VOCAB
from tests.sequences import sequence
from tests.tiny_seq2seq import seq2seq_pair
from utils.events import Event, Finished, Round
from utils.logits_processor import GreedyProcessor, MultinomialProcessor

# Heads continue decoder-only models: where one drafts by default, copies stand in for it.
EVERY = (*(name for name in DRAFTERS if name not in (*HEADS, "staged")), "staged suffix", "point tree", "suffix tree")
KINDS = ("model", "point tree")
COMBINATIONS = [("t5", drafter) for drafter in EVERY] + [
    (family, drafter) for family in ("bart", "marian") for drafter in KINDS
]
FAMILIES = ("t5", "bart", "marian")


def drafts(events: list[Event]) -> list[tuple[int, ...]]:
    return [event.drafts for event in events if isinstance(event, Round)]


def pair(family: str, noise: float = 0.1, stop: frozenset[int] = frozenset()) -> Pair:
    return seq2seq_pair(family, VOCAB, noise, stop)


def memorised(made: Pair) -> Pair:
    """Rows that are computed once, so that thousands of runs are affordable."""
    assert made.drafter is not None
    return replace(made, target=MemoRunner(made.target), drafter=MemoRunner(made.drafter))


@pytest.mark.parametrize(("family", "drafter"), COMBINATIONS)
def test_greedy_output_is_that_of_autoregression(family: str, drafter: str) -> None:
    suite.check_greedy(case(drafter), pair(family), length=10, prompts=2)


def test_egag_is_greedy_too() -> None:
    suite.check_greedy(case("model", "egag"), pair("t5"), length=10)


@pytest.mark.parametrize(
    ("family", "drafter"), [("t5", "model"), ("t5", "ngram"), ("bart", "model"), ("marian", "suffix tree")]
)
def test_sampled_output_has_the_targets_distribution(family: str, drafter: str) -> None:
    suite.check_distribution(case(drafter), memorised(pair(family)), MultinomialProcessor(1.0))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_drafter_that_is_the_target_is_accepted_whole(family: str) -> None:
    for processor in (GreedyProcessor(), MultinomialProcessor(1.0)):
        suite.check_self_draft(case("model"), pair(family, noise=0.0), processor)


@pytest.mark.parametrize(("family", "drafter"), [one for one in COMBINATIONS if one[1] not in LEARN_FROM_VERDICTS])
def test_every_proposal_equals_a_redraft_without_cache(family: str, drafter: str) -> None:
    suite.check_redraft(case(drafter), pair(family), length=12)


@pytest.mark.parametrize(
    ("family", "stop"), [("t5", {2}), ("t5", {0, 3}), ("bart", {2}), ("marian", {5})], ids=lambda value: str(value)
)
def test_a_stop_token_ends_the_text_wherever_it_falls(family: str, stop: set[int]) -> None:
    """Also where the decoder begins with a token that stops: what it begins with is no output."""
    made = pair(family, stop=frozenset(stop))
    suite.check_greedy(case("model"), made, length=8)
    for number in range(5):
        events = suite.run(case("model"), made, MultinomialProcessor(1.0), 8, number)
        ids = suite.output(events)
        assert isinstance(events[-1], Finished)
        assert not stop & set(ids[:-1])
        assert (ids[-1] in stop) == (events[-1].reason == "stop")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_no_more_tokens_than_asked(family: str, length: int) -> None:
    for noise in (0.1, 0.0):
        events = suite.run(case("model"), pair(family, noise), GreedyProcessor(), length)
        assert events[-1] == Finished("length", length)
        assert len(suite.output(events)) == length


@pytest.mark.parametrize("family", FAMILIES)
def test_a_full_window_of_the_decoder_ends_the_text(family: str) -> None:
    made = pair(family)
    made.target.window = 10
    events = suite.run(case("model"), made, GreedyProcessor(), 100)
    assert events[-1] == Finished("context", 9)


@pytest.mark.parametrize("drafter", ["model", "suffix tree", "point tree"])
def test_what_an_earlier_source_left_is_gone(drafter: str) -> None:
    """A run that is closed early and one on another source, then the suite's own: as if it were the first."""
    made, combination = pair("t5"), case(drafter)
    used: Drafter = combination.drafter(made)
    for prompt in ((3, 3, 1, 5), (2, 4)):
        suite.run(combination, made, GreedyProcessor(), 6, prompt=prompt, drafter=used)
    after = suite.run(combination, made, GreedyProcessor(), 12, drafter=used)
    fresh = suite.run(combination, pair("t5"), GreedyProcessor(), 12)
    assert suite.output(after) == suite.output(fresh)
    if drafter != "suffix tree":  # which remembers earlier responses on purpose
        assert drafts(after) == drafts(fresh)


def test_the_output_depends_on_the_source() -> None:
    """Negative control: without this, an encoder that is never asked would pass."""
    for family in FAMILIES:
        runs = (
            suite.run(case("none"), pair(family), GreedyProcessor(), 12, prompt=source) for source in (PROMPT, (5, 3))
        )
        assert len({tuple(suite.output(run)) for run in runs}) == 2


def test_copies_come_from_the_source() -> None:
    """The text 4 2 behind the decoder's start, and the source 1 4 2 5 3: what follows there is drafted."""
    made = pair("t5")
    seq = sequence([0, 4, 2], made.target, prompt_length=1, encoder_ids=(1, 4, 2, 5, 3))
    for name in ("prompt_lookup", "ngram", "suffix"):
        drafter = case(name).drafter(made)
        drafter.begin(seq)
        assert proposal_of(drafter.propose(seq, FixedGamma(2), 5)).tokens.tolist()[:1] == [5], name
