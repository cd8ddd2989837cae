"""Suffix decoding's drafts (arXiv 2411.04975), from any tree that counts what follows what.

A tree holds every substring of its texts up to a depth D, with its number of occurrences. The context's
last m tokens are matched for m = 1, 2, ...; below each match the counts say how likely each continuation
was, and the match whose drafts promise the most accepted tokens wins.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from operator import itemgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

C = TypeVar("C")
Branch = tuple[int, int, C]
_Row = tuple[int, int, int]


@dataclass(slots=True)
class Match(Generic[C]):
    """A place in a tree that the last m tokens of the context lead to, for every m in [shortest, longest].

    These suffixes occur equally often, hence in the same places, hence with the same continuations.
    """

    shortest: int
    longest: int
    count: int
    place: C


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens with their parents (-1 = the last token of the context), parents before children.

    probs: share of the match's occurrences that went on this way, one entry a draft. score: their sum, the
    expected number of accepted drafts. match_length: how many tokens of the context were matched.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    score: float = 0.0
    match_length: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to draft: `budget` tokens a round, `room` tokens deep, int(m * factor + 1e-6) for a match of m.

    A draft less probable than `min_prob` is left out; `tree` drafts alternatives as well.
    """

    budget: int
    room: int
    factor: float = 1.0
    min_prob: float = 0.1
    tree: bool = False

    def tokens(self, match_length: int) -> int:
        """Most tokens after a match of this length."""
        return min(self.budget, int(match_length * self.factor + 1e-6))


class _Plan(NamedTuple):
    """How many tokens a draft may have and how deep it may go, after a match of each length up to the tree's depth.

    Up to `peak` no depth is less than the one before; behind it each is, because the tree ends.
    """

    sizes: tuple[int, ...]
    deepest: tuple[int, ...]
    peak: int


@lru_cache(maxsize=64)
def _plan(limits: Limits, depth: int) -> _Plan:
    sizes = tuple(limits.tokens(length) for length in range(depth + 1))
    deepest = tuple(min(size, limits.room, depth - length) for length, size in enumerate(sizes))
    return _Plan(sizes, deepest, max(range(depth + 1), key=lambda length: (deepest[length], length)))


class SuffixTree(Protocol[C]):
    """What drafting asks of a tree that has read the context; a branch is (token, count, place)."""

    depth: int

    def matches(self) -> Sequence[Match[C]]:
        """Where ends of the context occur, longest first; the whole context is no end."""

    def likeliest(self, place: C) -> Branch[C] | None:
        """The most frequent continuation by one token."""

    def branches(self, place: C, least: int = 0) -> Sequence[Branch[C]]:
        """The continuations by one token that occurred `least` times or more often, in any order."""


class LookaheadTree(Generic[C]):
    """A tree as if it had read some more tokens, which it does not learn.

    Only matches that begin in the text that it did read are followed into those tokens.
    """

    def __init__(self, tree: SuffixTree[C], pending: Sequence[int]) -> None:
        self.depth = tree.depth
        self.likeliest, self.branches = tree.likeliest, tree.branches
        self._tree, self._pending = tree, pending

    def matches(self) -> Sequence[Match[C]]:
        """The tree's matches that go on with the pending tokens, longest first."""
        more = len(self._pending)
        followed = (
            (match, self._follow(match)) for match in self._tree.matches() if match.shortest + more < self.depth
        )
        return [
            Match(match.shortest + more, min(match.longest + more, self.depth), *end)
            for match, end in followed
            if end is not None
        ]

    def _follow(self, match: Match[C]) -> tuple[int, C] | None:
        """(count, place) below a match after the pending tokens."""
        end = match.count, match.place
        for token in self._pending:
            branch = next((branch for branch in self._tree.branches(end[1]) if branch[0] == token), None)
            if branch is None:
                return None
            end = branch[1], branch[2]
        return end


def best_draft(tree: SuffixTree[C], limits: Limits, above: float = 0.0) -> Draft:
    """The draft with the highest score over all match lengths; on a tie that of the longer match.

    Empty where no score is above `above`, which spares the work of finding what is not wanted.

    Example: in the text 5 6 7 5 6, the end 5 6 occurs twice and was once followed by 7 5: with a factor
    of 1 these two are drafted, each with probability 1/2, and the score is 1.
    """
    plan = _plan(limits, tree.depth)
    best, rank = Draft(), (above, tree.depth)
    for bound, match in _promising(tree, limits.tree, plan, above):
        if (bound, match.longest) <= rank:
            break
        drafts = _trees if limits.tree and plan.sizes[match.longest] > 1 else _paths
        for draft in drafts(tree, match, _least(limits.min_prob, match.count), plan, rank):
            if (draft.score, draft.match_length) > rank:
                best, rank = draft, (draft.score, draft.match_length)
    return best


def _promising(tree: SuffixTree[C], alternatives: bool, plan: _Plan, above: float) -> list[tuple[float, Match[C]]]:
    """Matches with what no draft of theirs scores more than, where that is above `above`: best first, then longest.

    No draft is more frequent than the likeliest first token, and those of one depth together not more
    frequent than the match. Rounding keeps the order: bound and score are one division each.
    """
    sizes, deepest, peak = plan
    likeliest = tree.likeliest
    promising: list[tuple[float, Match[C]]] = []
    for match in tree.matches():
        first = likeliest(match.place)
        if first is not None:
            deep = deepest[_within(match, peak)]
            size = sizes[match.longest] if alternatives else deep
            bound = min(deep, size * first[1] / match.count)
            if bound > above:
                promising.append((bound, match))
    promising.sort(key=itemgetter(0), reverse=True)
    return promising


def _paths(tree: SuffixTree[C], match: Match[C], least: int, plan: _Plan, rank: tuple[float, int]) -> Iterator[Draft]:
    """The longest path below a match, for the longest end of the context that allows it: no other scores more."""
    need = _needed(match, match.longest, rank)
    rows = _path(tree, match, plan.deepest[_within(match, plan.peak)], least, need)
    if rows:
        length = match.longest
        while plan.deepest[length] < len(rows):
            length -= 1
        yield _drafted(rows, match.count, length)


def _trees(tree: SuffixTree[C], match: Match[C], least: int, plan: _Plan, rank: tuple[float, int]) -> Iterator[Draft]:
    """The trees below a match, for those of its lengths that allow more than any longer one, in size or depth."""
    for length in range(_within(match, plan.peak), match.longest + 1):
        size, deep = plan.sizes[length], plan.deepest[length]
        if (deep, length) > rank:
            rows = _tree(tree, match, size, deep, least, _needed(match, length, rank))
            if rows:
                draft = _drafted(rows, match.count, length)
                rank = draft.score, length
                yield draft


def _within(match: Match[C], length: int) -> int:
    """The length of the match that is nearest to this one."""
    if length > match.longest:
        return match.longest
    return length if length > match.shortest else match.shortest


def _least(share: float, whole: int) -> int:
    """The smallest count that is this share of the whole, as a division of floats says it."""
    count = math.ceil(share * whole)
    while count / whole < share:
        count += 1
    while (count - 1) / whole >= share:
        count -= 1
    return count


def _needed(match: Match[C], length: int, rank: tuple[float, int]) -> int:
    """The smallest sum of counts with which a draft of this match length beats (score, match length)."""
    score, longer = rank
    return _least(score if length > longer else math.nextafter(score, math.inf), match.count)


def _path(tree: SuffixTree[C], match: Match[C], deep: int, least: int, need: int) -> list[_Row]:
    """(token, parent, count) along the most frequent continuation; none where the counts' sum stays below `need`.

    The product of the count ratios along the path is the last count over the first one.
    """
    rows: list[_Row] = []
    place, likeliest = match.place, tree.likeliest
    for row in range(deep):
        branch = likeliest(place)
        if branch is None:
            break
        token, count, place = branch
        if count < least or count * (deep - row) < need:
            break
        need -= count
        rows.append((token, row - 1, count))
    return rows if need <= 0 else []


def _tree(tree: SuffixTree[C], match: Match[C], size: int, deep: int, least: int, need: int) -> list[_Row]:
    """(token, parent, count) of the most frequent continuation of all drafted so far, again and again.

    On a tie the older. None where the counts' sum stays below `need`. What occurred more often than all
    that waits goes past the heap.
    """
    rows: list[_Row] = []
    heap: list[tuple[int, int, int, int, int, C]] = []
    pushed, depth, place, count = 0, 0, match.place, match.count
    for row in range(size):
        below = _frequent(tree, place, count, least) if depth < deep else ()
        if len(below) == 1 and (not heap or below[0][1] > -heap[0][0]):
            token, count, place = below[0]
            parent, depth = row - 1, depth + 1
        else:
            for token, count, place in below:
                pushed += 1
                heappush(heap, (-count, pushed, token, row - 1, depth + 1, place))
            if not heap:
                break
            negative, _, token, parent, depth, place = heappop(heap)
            count = -negative
        if count * (size - row) < need:
            break
        need -= count
        rows.append((token, parent, count))
    return rows if need <= 0 else []


def _frequent(tree: SuffixTree[C], place: C, count: int, least: int) -> Sequence[Branch[C]]:
    """The branches with `least` occurrences or more, of a place with `count`, which is the most they sum to."""
    best = tree.likeliest(place)
    if best is None or best[1] < least:
        return ()
    return (best,) if count - best[1] < least else tree.branches(place, least)


def _drafted(rows: Sequence[_Row], whole: int, length: int) -> Draft:
    """One division for the score: equal scores are equal numbers, so that ties are seen."""
    tokens, parents, counts = zip(*rows, strict=True)
    return Draft(tokens, parents, tuple(count / whole for count in counts), sum(counts) / whole, length)
