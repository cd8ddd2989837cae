"""Suffix trees: counts, match lengths, scores and eviction against brute force, and hand-worked drafts."""

import math
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egag.length_rule import DraftBudget
from ngram_assisted.suffix import SuffixDrafter
from ngram_assisted.suffix_memory import Recollection, ResponseTree
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import Draft, Limits, _least, best_draft
from sampling.forward.tree import depths
from scripts.suffix_reference import OurTrees, accepted, drafts_of
from tests.conformance.toy import toy_runner
from tests.sequences import sequence

TEXTS = st.lists(st.integers(0, 3), max_size=30)
RESPONSES = st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=7)
DEPTHS = st.sampled_from([2, 3, 5, 64])
LIMITS = st.builds(
    Limits,
    budget=st.integers(0, 8),
    room=st.integers(1, 8),
    factor=st.sampled_from([0.5, 1.0, 2.0]),
    min_prob=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
    tree=st.booleans(),
)


def text_tree(text: Sequence[int], depth: int = 64) -> TextTree:
    tree = TextTree(depth)
    tree.extend(text)
    return tree


def recollection(responses: Sequence[Sequence[int]], context: Sequence[int], depth: int = 64) -> Recollection:
    memory = ResponseTree(depth)
    for response in responses:
        memory.add(response)
    made = Recollection(memory)
    made.extend(context)
    return made


class Oracle:
    """The definitions of suffix decoding, word for word, on plain lists."""

    def __init__(self, texts: Sequence[Sequence[int]], depth: int) -> None:
        self.texts, self.depth = [list(text) for text in texts], depth

    def ends(self, part: Sequence[int]) -> list[tuple[int, int]]:
        """(text, end) of every occurrence; the tree holds none that is longer than its depth."""
        if len(part) > self.depth:
            return []
        size = len(part)
        return [
            (number, at + size)
            for number, text in enumerate(self.texts)
            for at in range(len(text) - size + 1)
            if text[at : at + size] == list(part)
        ]

    def count(self, part: Sequence[int]) -> int:
        return len(self.ends(part))

    def best(self, context: Sequence[int], limits: Limits) -> Draft:
        best, context = Draft(), list(context)[-self.depth :]
        for length in range(1, len(context)):
            match = context[-length:]
            if not self.ends(match):
                break
            draft = self._draft(match, limits)
            if draft.tokens and draft.score >= best.score:
                best = draft
        return best

    def _draft(self, match: list[int], limits: Limits) -> Draft:
        """Greedy choice by (count, last occurrence); in a tree among all drafts' continuations."""
        size = min(limits.budget, int(len(match) * limits.factor + 1e-6))
        paths: list[list[int]] = []
        while len(paths) < size:
            above = [[], *paths] if limits.tree else [paths[-1] if paths else []]
            found = [(self.ends([*match, *path, token]), [*path, token]) for path in above for token in range(4)]
            found = [
                (ends, path)
                for ends, path in found
                if ends and path not in paths and len(path) <= limits.room
                if len(ends) / self.count(match) >= limits.min_prob
            ]
            if not found:
                break
            paths.append(max(found, key=lambda entry: (len(entry[0]), max(entry[0])))[1])
        counts = [self.count([*match, *path]) for path in paths]
        parents = [paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths]
        probs = tuple(count / self.count(match) for count in counts)
        tokens = tuple(path[-1] for path in paths)
        return Draft(tokens, tuple(parents), probs, sum(counts) / self.count(match), len(match))


def check(draft: Draft, expected: Draft, limits: Limits) -> None:
    """Equal; of a tree, which breaks ties between its branches in an order of its own, what ties cannot change."""
    assert draft.score == expected.score
    if limits.tree:
        assert (draft.match_length, draft.probs) == (expected.match_length, expected.probs)
        assert all(parent < row for row, parent in enumerate(draft.parents))
        assert max(depths(draft.parents), default=0) <= limits.room
        assert len(set(zip(draft.parents, draft.tokens, strict=True))) == len(draft.tokens)
    else:
        assert draft == expected


def test_a_text_drafts_what_followed_its_end() -> None:
    draft = best_draft(text_tree([5, 6, 7, 5, 6]), Limits(10, 10))
    assert draft == Draft((7, 5), (-1, 0), (0.5, 0.5), 1.0, 2)


def test_the_most_frequent_continuation_of_earlier_responses_wins() -> None:
    """9 was followed by 1 twice and by 2 once; one matched token allows one draft, factor 2 allows two."""
    responses = [[9, 1, 4], [9, 2], [9, 1, 5]]
    assert best_draft(recollection(responses, [0, 9]), Limits(10, 10)) == Draft((1,), (-1,), (2 / 3,), 2 / 3, 1)
    assert best_draft(recollection(responses, [0, 9]), Limits(10, 10, 2.0)).tokens == (1, 5)
    assert best_draft(recollection(responses, [0, 9]), Limits(10, 10, 2.0, 0.5)).tokens == (1,)


def test_a_tree_takes_the_likeliest_drafts_parents_first() -> None:
    responses = [[9, 1, 4], [9, 2], [9, 1, 4], [9, 3, 6]]
    draft = best_draft(recollection(responses, [0, 9]), Limits(4, 10, 9.0, tree=True))
    assert draft == Draft((1, 4, 2, 3), (-1, 0, -1, -1), (0.5, 0.5, 0.25, 0.25), 1.5, 1)


def test_the_end_of_the_tree_bounds_match_and_draft() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]
    assert best_draft(text_tree(text, 6), Limits(10, 10)).tokens == (5, 6, 7)
    assert best_draft(text_tree(text, 6), Limits(10, 10)).match_length == 3


@pytest.mark.parametrize("text", [[], [1], [1, 1]])
def test_short_texts_draft_at_most_what_they_saw(text: list[int]) -> None:
    assert best_draft(text_tree(text), Limits(10, 10)).tokens == ((1,) if text == [1, 1] else ())
    assert best_draft(recollection([text], text), Limits(10, 10)).tokens == ((1,) if text == [1, 1] else ())


@given(TEXTS, DEPTHS)
def test_a_text_counts_every_substring_within_its_depth(text: list[int], depth: int) -> None:
    tree, oracle = text_tree(text, depth), Oracle([text], depth)
    for start in range(len(text)):
        place = 0
        for end in range(start + 1, min(len(text), start + depth) + 1):
            counts = {token: (count, below) for token, count, below in tree.branches(place)}
            count, place = counts[text[end - 1]]
            assert count == oracle.count(text[start:end])
    assert tree.nodes <= max(1, 2 * len(text))


@given(TEXTS, LIMITS, DEPTHS)
@settings(max_examples=300)
def test_drafts_from_a_growing_text_equal_the_definition(text: list[int], limits: Limits, depth: int) -> None:
    tree = TextTree(depth)
    for end in range(1, len(text) + 1):
        tree.extend(text[end - 1 : end])
        check(best_draft(tree, limits), Oracle([text[:end]], depth).best(text[:end], limits), limits)


@given(RESPONSES, TEXTS, LIMITS, DEPTHS)
@settings(max_examples=300)
def test_drafts_from_responses_equal_the_definition(
    responses: list[list[int]], text: list[int], limits: Limits, depth: int
) -> None:
    oracle, made = Oracle(responses, depth), recollection(responses, [], depth)
    for end in range(1, len(text) + 1):
        made.extend(text[end - 1 : end])
        check(best_draft(made, limits), oracle.best(text[:end], limits), limits)


@given(RESPONSES, st.integers(1, 4), DEPTHS)
@settings(max_examples=300)
def test_an_evicted_response_leaves_no_trace(responses: list[list[int]], most: int, depth: int) -> None:
    """Counts, and the very number of nodes, are those of a tree that never saw what was evicted."""
    memory = ResponseTree(depth, most)
    for response in responses:
        memory.add(response)
    kept = [response for response in responses if response][-most:]
    fresh = ResponseTree(depth)
    for response in kept:
        fresh.add(response)
    assert (memory.responses, memory.nodes, memory.memory_bytes) == (len(kept), fresh.nodes, fresh.memory_bytes)
    for part in [response[at:] for response in responses for at in range(len(response))]:
        assert seen(memory, part) == seen(fresh, part)
        assert seen(memory, part) == Oracle(kept, depth).count(part[: depth - 1])


def seen(memory: ResponseTree, part: list[int]) -> int:
    """How often a text occurs in the memory, cut to what can be matched."""
    part = part[: memory.depth - 1]
    made = Recollection(memory)
    made.extend([-1, *part])
    return next((match.count for match in made.matches() if match.shortest <= len(part) <= match.longest), 0)


def test_a_memory_of_none_stays_empty() -> None:
    memory = ResponseTree(64, 0)
    memory.add([1, 2, 3])
    assert (memory.responses, memory.nodes, memory.memory_bytes) == (0, 0, 0)


def run(drafter: SuffixDrafter, prompt: list[int], response: list[int], whole: bool = True) -> None:
    """What the loop tells a drafter during a run."""
    seq = sequence([*prompt], toy_runner(0))
    drafter.begin(seq)
    for token in response:
        drafter.propose(seq, DraftBudget(10), 5)
        seq.tokens.append(token)
    if whole:
        drafter.finish(seq)


def drafted(drafter: SuffixDrafter, tokens: list[int], limit: int = 9) -> list[int]:
    seq = sequence(tokens, toy_runner(0))
    drafter.begin(seq)
    return drafter.propose(seq, DraftBudget(10), limit).tokens.tolist()


def test_a_response_is_remembered_and_its_prompt_is_not() -> None:
    drafter = SuffixDrafter()
    run(drafter, [1, 2, 3], [7, 8, 9])
    assert drafted(drafter, [0, 7, 8]) == [9]
    assert drafted(drafter, [0, 1, 2]) == []


def test_a_run_that_was_abandoned_is_not_remembered() -> None:
    drafter = SuffixDrafter()
    run(drafter, [1], [7, 8, 9], whole=False)
    assert drafted(drafter, [0, 7, 8]) == []
    assert drafter.memory_tree.responses == 0


def test_the_better_score_of_both_trees_is_drafted_and_a_tie_is_the_texts() -> None:
    drafter = SuffixDrafter()
    run(drafter, [0], [7, 8, 9, 9])
    assert drafted(drafter, [7, 8, 1, 7, 8]) == [9, 9], "certain, against a half each"
    run(drafter, [0], [7, 8, 1, 1])
    assert drafted(drafter, [7, 8, 2, 2, 7, 8]) == [2, 2], "a half each in both"


def test_a_limit_bounds_the_depth_and_none_is_no_draft() -> None:
    drafter = SuffixDrafter()
    run(drafter, [0], [1, 2, 3, 4, 5, 6])
    assert [drafted(drafter, [0, 1, 2, 3], limit) for limit in (0, 1, 2, 9)] == [[], [4], [4, 5], [4, 5, 6]]


def test_other_parameters_keep_what_was_said_before() -> None:
    earlier, later = SuffixDrafter(max_cached_requests=-1), SuffixDrafter(max_cached_requests=1, min_token_prob=0.0)
    for response in ([1, 2, 3], [4, 5, 6]):
        earlier.memory_tree.add(response)
    later.adopt(earlier)
    assert later.memory_tree.responses == 1
    assert drafted(later, [4, 5], 4) == [6]
    assert earlier.memory_tree.responses == 2


def test_the_comparison_with_the_reference_counts_drafts_that_agree() -> None:
    """scripts/suffix_reference.py: a round's accepted drafts, then the target's own token."""
    right, wrong, none = (1.0, [1, 2]), (1.0, [9]), (0.0, [])
    assert accepted([right, wrong, wrong, wrong, right], [1, 2, 3, 4, 1]) == 3
    assert accepted([none, none, right], [5, 6, 1]) == 1
    assert drafts_of(OurTrees(), 0, ([1, 2, 3, 1], [2, 3]))[1] == (1.0, (3, 1))


@given(st.integers(1, 400), st.integers(0, 399))
@settings(max_examples=300, deadline=None)
def test_the_least_count_of_a_share_is_what_division_says(whole: int, count: int) -> None:
    """Also just above a quotient, where a product of floats rounds down to it."""
    for share in (count / whole, math.nextafter(count / whole, math.inf), math.nextafter(count / whole, 0.0)):
        expected = next(least for least in range(-1, whole + 402) if least / whole >= share)
        assert max(0, _least(share, whole)) == max(0, expected)


def test_what_a_tree_takes_is_said_to_be_as_much_as_before() -> None:
    """An estimate, for those who choose bounds: 348 bytes a state of a text, 150 a node of a memory, and 8 a token."""
    text, memory = text_tree([1, 2, 1, 3, 1, 2]), ResponseTree(depth=4)
    state = sys.getsizeof({0: 0}) + 116
    assert text.memory_bytes == text.nodes * state + 6 * 8
    memory.add([1, 2, 1, 3, 1, 2])
    memory.add([2, 2, 2])
    assert memory.memory_bytes == memory.nodes * 150 + 9 * 8


def test_behind_an_eviction_the_most_frequent_continuation_is_looked_for() -> None:
    """1 9 is evicted, so that nobody knows what follows 1 most; 1 4, which comes then, does not become it."""
    memory = ResponseTree(max_responses=4)
    for response in ([1, 9], [7, 8], [1, 2], [1, 2], [1, 3], [1, 4]):
        memory.add(response)
    made = Recollection(memory)
    made.extend([0, 1])
    assert list(best_draft(made, Limits(1, 1, 1.0, 0.0)).tokens) == [2]
