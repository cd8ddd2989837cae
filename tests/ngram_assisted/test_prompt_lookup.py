"""Prompt lookup: which place is found, what is copied, and what the index remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egag.length_rule import DraftBudget
from ngram_assisted.prompt_lookup import GramIndex, PromptLookupDrafter
from sampling.methods.settings import Settings
from sampling.sequence import Sequence
from tests.conformance.toy import toy_runner
from tests.refusals import refused
from tests.sequences import sequence


def context(tokens: list[int]) -> Sequence:
    return sequence(tokens, toy_runner(0))


def drafts(drafter: PromptLookupDrafter, tokens: list[int], budget: int = 10, limit: int = 99) -> list[int]:
    """What a drafter that has just begun with these tokens proposes."""
    seq = context(tokens)
    drafter.begin(seq)
    return drafter.propose(seq, DraftBudget(budget), limit).tokens.tolist()


def brute_force(tokens: list[int], longest: int, shortest: int, latest: bool) -> list[int]:
    """All that followed the place found, by searching the whole text."""
    for size in range(longest, shortest - 1, -1):
        starts = [at for at in range(len(tokens) - size) if tokens[at : at + size] == tokens[len(tokens) - size :]]
        if size < len(tokens) and starts:
            return tokens[(starts[-1] if latest else starts[0]) + size :]
    return []


def test_the_longest_end_that_was_seen_before_is_continued() -> None:
    assert drafts(PromptLookupDrafter(), [5, 6, 7, 8, 6, 9, 5, 6]) == [7, 8, 6, 9, 5, 6]


@pytest.mark.parametrize(("occurrence", "copied"), [("latest", [8, 5]), ("first", [7, 5, 8, 5])])
def test_the_occurrence_that_is_copied_from(occurrence: str, copied: list[int]) -> None:
    assert drafts(PromptLookupDrafter(lookup_occurrence=occurrence), [5, 7, 5, 8, 5]) == copied


def test_a_match_may_overlap_the_end_and_the_copy_ends_with_the_text() -> None:
    assert drafts(PromptLookupDrafter(), [3, 3, 3, 3]) == [3]
    assert drafts(PromptLookupDrafter(lookup_occurrence="first"), [3, 3, 3, 3, 3]) == [3, 3]


def test_sizes_outside_the_bounds_are_not_looked_up() -> None:
    tokens = [1, 2, 9, 7, 2, 8, 1, 2]
    assert drafts(PromptLookupDrafter(max_ngram_size=1), tokens) == [8, 1, 2]
    assert drafts(PromptLookupDrafter(min_ngram_size=3), tokens) == []


@pytest.mark.parametrize(("budget", "limit", "count"), [(0, 9, 0), (2, 9, 2), (9, 0, 0), (9, 3, 3), (9, 9, 4)])
def test_budget_and_limit(budget: int, limit: int, count: int) -> None:
    assert drafts(PromptLookupDrafter(), [1, 2, 3, 4, 1], budget, limit) == [2, 3, 4, 1][:count]


@pytest.mark.parametrize("tokens", [[4], [4, 5], [4, 5, 6, 7]])
def test_nothing_is_found_where_nothing_repeats(tokens: list[int]) -> None:
    assert drafts(PromptLookupDrafter(), tokens) == []


def test_an_empty_text_is_read() -> None:
    index = GramIndex((2, 1))
    index.read([])
    assert index.find([]) is None


def test_a_new_prompt_forgets_the_old_one() -> None:
    drafter = PromptLookupDrafter()
    assert drafts(drafter, [1, 2, 3, 1]) == [2, 3, 1]
    assert drafts(drafter, [8, 9, 1]) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_growing_text_is_searched_as_a_whole(tokens: list[int], one: int, other: int, latest: bool) -> None:
    shortest, longest = sorted((one, other))
    drafter = PromptLookupDrafter(longest, shortest, "latest" if latest else "first")
    seq = context(tokens[:1])
    drafter.begin(seq)
    for end in range(1, len(tokens) + 1, 2):
        seq.tokens = tokens[:end]
        copied = drafter.propose(seq, DraftBudget(50), 99).tokens.tolist()
        assert copied == brute_force(tokens[:end], longest, shortest, latest)


def test_bounds_the_wrong_way_round_are_refused() -> None:
    settings = Settings()
    settings.assign_all([("max_ngram_size", "5"), ("min_ngram_size", "4")])
    with refused("min_ngram_size 4", "max_ngram_size 2"):
        settings.assign("max_ngram_size", "2")
