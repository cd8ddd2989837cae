"""The suffix automaton against brute force, and what SAM decoding copies from this text and from earlier responses."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egag.controller import DraftBudget
from ngram_assisted.sam import SamDrafter
from ngram_assisted.suffix_automaton import Found, Reader, SuffixAutomaton
from sampling.sequence import Sequence as Text
from tests.conformance.toy import toy_runner
from tests.sequences import sequence

TEXTS = st.lists(st.integers(0, 3), max_size=40)
PENDING = st.lists(st.integers(0, 3), max_size=4)


def automaton(text: Sequence[int], latest: bool = True) -> SuffixAutomaton:
    made = SuffixAutomaton(latest)
    made.extend(text)
    return made


def brute_force(text: Sequence[int], read: Sequence[int], latest: bool) -> Found | None:
    """The longest end of `read` that something follows in the text, by comparing all ends with all places."""
    for length in range(len(read), 0, -1):
        end = [*read[len(read) - length :]]
        places = [at for at in range(length, len(text)) if [*text[at - length : at]] == end]
        if places:
            return Found(length, places[-1 if latest else 0])
    return None


@given(TEXTS, PENDING, st.booleans(), st.integers(1, 4))
def test_the_longest_end_is_found_wherever_the_text_stops(
    text: list[int], pending: list[int], latest: bool, stride: int
) -> None:
    made = SuffixAutomaton(latest)
    for end in range(0, len(text) + 1, stride):
        made.extend(text[len(made) : end])
        for after in ([], pending):
            assert made.find(after) == brute_force(text[:end], [*text[:end], *after], latest)
        assert made.nodes <= max(2, 2 * len(made))


@given(TEXTS, TEXTS, st.booleans())
def test_a_reader_knows_the_longest_end_in_another_text(text: list[int], read: list[int], latest: bool) -> None:
    reader = Reader(automaton(text, latest))
    reader.extend(read)
    assert reader.found() == brute_force(text, read, latest)


@given(TEXTS, TEXTS, st.lists(st.tuples(PENDING, PENDING), max_size=6), st.booleans())
def test_a_reader_stays_right_while_the_other_text_grows(
    text: list[int], read: list[int], more: list[tuple[list[int], list[int]]], latest: bool
) -> None:
    """It may miss what came behind its back, and nothing else: neither a longer end of before, nor a later place."""
    made = automaton(text, latest)
    reader, known = Reader(made), [*text]
    reader.extend(read)
    for grown, further in more:
        made.extend(grown)
        known += grown
        reader.extend(further)
        read = [*read, *further]
        found, least = reader.found(), brute_force(text, read, latest)
        assert found is not None or least is None
        if found is not None:
            assert found.length >= (least.length if least else 0)
            assert found == brute_force(known, read[len(read) - found.length :], latest)


@given(st.lists(st.sampled_from([1, 1, 1, 1, 1, 1, 1, 1, 1, 2]), min_size=100, max_size=200))
def test_a_text_that_repeats_itself_is_found_somewhere(text: list[int]) -> None:
    found, exact = automaton(text).find(), brute_force(text, text, latest=True)
    assert found is not None and exact is not None and found.length == exact.length
    assert text[found.at - found.length : found.at] == text[-found.length :] and found.at < len(text)


@pytest.mark.parametrize("broken", ["_split", "_renew"])
def test_brute_force_sees_a_broken_step(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """States that keep what is longer, and places that are not renewed."""

    def right() -> list[bool]:
        return [automaton(text).find() == brute_force(text, text, latest=True) for text in texts]

    texts = list(product(range(2), repeat=7))
    assert all(right())
    others = {"_split": lambda self, state, token: self._next[state][token], "_renew": lambda self: None}
    monkeypatch.setattr(SuffixAutomaton, broken, others[broken])
    assert not all(right())


def test_the_docstrings_example() -> None:
    made = automaton([5, 6, 7, 8, 5, 6])
    assert made.find() == (2, 2) and made.find([7]) == (3, 3) and made.find([9]) is None
    assert SuffixAutomaton().find() is None and made.memory_bytes > 0


def drafter_on(tokens: list[int], **given: object) -> tuple[SamDrafter, Text]:
    drafter, seq = SamDrafter(**given), sequence(tokens, toy_runner(0))  # type: ignore[arg-type]
    drafter.begin(seq)
    return drafter, seq


def drafts(drafter: SamDrafter, seq: Text, budget: int = 10, limit: int = 99) -> list[int]:
    return drafter.propose(seq, DraftBudget(budget), limit).tokens.tolist()


def test_a_match_longer_than_any_n_gram_decides() -> None:
    """Behind 2 3 4 came 6 lately, behind 1 2 3 4 came 5."""
    assert drafts(*drafter_on([1, 2, 3, 4, 5, 9, 2, 3, 4, 6, 9, 1, 2, 3, 4]))[:2] == [5, 9]


@pytest.mark.parametrize(("occurrence", "copied"), [("latest", [8, 5]), ("first", [7, 5, 8, 5])])
def test_the_occurrence_that_is_copied_from(occurrence: str, copied: list[int]) -> None:
    assert drafts(*drafter_on([5, 7, 5, 8, 5], lookup_occurrence=occurrence)) == copied


@pytest.mark.parametrize(("budget", "limit", "count"), [(0, 9, 0), (2, 9, 2), (9, 0, 0), (9, 3, 3), (9, 9, 4)])
def test_budget_and_limit(budget: int, limit: int, count: int) -> None:
    assert drafts(*drafter_on([1, 2, 3, 4, 1]), budget, limit) == [2, 3, 4, 1][:count]


def test_drafts_that_go_on_behind_pending_ones_are_not_learnt() -> None:
    drafter, seq = drafter_on([1, 2, 3, 4, 5, 1, 2])
    for _ in range(2):
        assert drafter.continuation(seq, [3], 3) == [4, 5, 1]
        assert drafter.continuation(seq, [0], 3) == [] and drafter.continuation(seq, [3], 0) == []


def finished(drafter: SamDrafter, response: list[int]) -> None:
    seq = sequence([0, *response], toy_runner(0), prompt_length=1)
    drafter.begin(seq)
    drafter.finish(seq)


def test_the_longer_match_decides_between_the_text_and_earlier_responses() -> None:
    drafter = SamDrafter()
    finished(drafter, [1, 2, 3, 4])
    for tokens, expected in (
        ([2, 9, 0, 1, 2], [3, 4]),  # two tokens there, one here
        ([1, 2, 9, 1, 2], [9, 1, 2]),  # two tokens in both: this text's
        ([4], []),  # nothing but the next response follows there
    ):
        seq = sequence(tokens, toy_runner(0))
        drafter.begin(seq)
        assert drafts(drafter, seq) == expected


def test_no_match_runs_from_one_response_into_the_next() -> None:
    drafter, other = SamDrafter(), SamDrafter()
    for response in ([1, 2], [3, 4]):
        finished(drafter, response)
    other.adopt(drafter)
    for one in (drafter, other):
        assert "responses of 6 tokens" in one.memory()
        seq = sequence([2], toy_runner(0))
        one.begin(seq)
        assert drafts(one, seq) == [] and one.continuation(seq, [3], 4) == [4]


def test_nothing_is_remembered_where_it_is_not_asked_to() -> None:
    drafter = SamDrafter(sam_remember=False)
    finished(drafter, [1, 2, 3])
    drafter.adopt(_with_response())
    seq = sequence([1], toy_runner(0))
    drafter.begin(seq)
    assert drafts(drafter, seq) == [] and drafter.memory() == ""


def _with_response() -> SamDrafter:
    drafter = SamDrafter()
    finished(drafter, [1, 2, 3])
    return drafter
