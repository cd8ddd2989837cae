"""The drafts of suffix decoding (arXiv 2411.04975), from any tree that counts continuations.

A tree holds every substring of its texts up to a depth D, with its number of occurrences. The context's last m tokens
are matched for m = 1, 2, .... The counts after each match give the probability of each continuation. The match whose
drafts have the most expected accepted tokens wins.
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

    These suffixes occur equally often, so they occur at the same positions and have the same continuations.
    """

    shortest: int
    longest: int
    count: int
    place: C


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens with their parents (-1 = the last token of the context), parents before children.

    probs: for each draft, the share of the match's occurrences that continue this way. score: the sum of probs, the
    expected number of accepted drafts. match_length: the number of matched tokens of the context.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: tuple[float, ...] = ()
    score: float = 0.0
    match_length: int = 0

    def only(self, rows: Sequence[int], parents: tuple[int, ...]) -> "Draft":
        """The same without other rows; parents: of those, among themselves."""
        probs = tuple(self.probs[row] for row in rows)
        return Draft(tuple(self.tokens[row] for row in rows), parents, probs, sum(probs), self.match_length)


@dataclass(frozen=True, slots=True)
class Limits:
    """The size of a draft: `budget` tokens per round, `room` levels, int(m * factor + 1e-6) tokens for a match of m.

    A draft with a probability below `min_prob` is left out. `tree` also drafts alternatives.
    """

    budget: int
    room: int
    factor: float = 1.0
    min_prob: float = 0.1
    tree: bool = False

    def tokens(self, match_length: int) -> int:
        """The most tokens after a match of this length."""
        return min(self.budget, int(match_length * self.factor + 1e-6))


class _Plan(NamedTuple):
    """The most tokens and levels of a draft, for each match length up to the tree's depth.

    Up to `peak` the depths do not fall. After it each is smaller, because the depth of the tree ends the draft.
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
    """The interface of a tree that has read the context; a branch is (token, count, place)."""

    depth: int

    def matches(self) -> Sequence[Match[C]]:
        """The places of the context's suffixes, longest first, without the whole context."""

    def likeliest(self, place: C) -> Branch[C] | None:
        """The most frequent continuation by one token."""

    def branches(self, place: C, least: int = 0) -> Sequence[Branch[C]]:
        """The continuations by one token with at least `least` occurrences, in any order."""


class LookaheadTree(Generic[C]):
    """A view of a tree as if it had read some more tokens, without a change of the tree.

    Only matches that begin in the text that was read continue into the new tokens.
    """

    def __init__(self, tree: SuffixTree[C], pending: Sequence[int]) -> None:
        self.depth = tree.depth
        self.likeliest, self.branches = tree.likeliest, tree.branches
        self._tree, self._pending = tree, pending

    def matches(self) -> Sequence[Match[C]]:
        """The tree's matches that continue with the pending tokens, longest first."""
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
        """(count, place) after a match and the pending tokens."""
        end = match.count, match.place
        for token in self._pending:
            branch = next((branch for branch in self._tree.branches(end[1]) if branch[0] == token), None)
            if branch is None:
                return None
            end = branch[1], branch[2]
        return end


def best_draft(tree: SuffixTree[C], limits: Limits, above: float = 0.0) -> Draft:
    """The draft with the highest score over all match lengths; on a tie that of the longer match.

    It is empty if no score is above `above`. A larger `above` saves the search for unwanted drafts.

    Example: in the text 5 6 7 5 6, the end 5 6 occurs twice and was once followed by 7 5: with a factor of 1 these two
    are drafted, each with probability 1/2, and the score is 1.
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
    """The matches with an upper bound of their scores above `above`, in falling order of bound, then length.

    No draft is more frequent than the most frequent first token. The drafts of one depth together are not more frequent
    than the match. Bound and score are one division each, so rounding keeps their order.
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
    """The longest path after a match, for the longest suffix that allows it: no other path scores more."""
    need = _needed(match, match.longest, rank)
    rows = _path(tree, match, plan.deepest[_within(match, plan.peak)], least, need)
    if rows:
        length = match.longest
        while plan.deepest[length] < len(rows):
            length -= 1
        yield _drafted(rows, match.count, length)


def _trees(tree: SuffixTree[C], match: Match[C], least: int, plan: _Plan, rank: tuple[float, int]) -> Iterator[Draft]:
    """The trees after a match, for those of its lengths that allow more than any longer one, in size or depth."""
    for length in range(_within(match, plan.peak), match.longest + 1):
        size, deep = plan.sizes[length], plan.deepest[length]
        if (deep, length) > rank:
            rows = _tree(tree, match, size, deep, least, _needed(match, length, rank))
            if rows:
                draft = _drafted(rows, match.count, length)
                rank = draft.score, length
                yield draft


def _within(match: Match[C], length: int) -> int:
    """The length of the match that is nearest to `length`."""
    if length > match.longest:
        return match.longest
    return length if length > match.shortest else match.shortest


def _least(share: float, whole: int) -> int:
    """The smallest count with this share of the whole, computed as a division of floats."""
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
    """(token, parent, count) along the most frequent continuation; empty if the counts' sum is below `need`.

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
    """(token, parent, count) of a tree that grows by the most frequent continuation of all its nodes.

    On a tie the older node wins. The result is empty if the counts' sum is below `need`. A continuation with more
    occurrences than all waiting ones skips the heap.
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
    """The branches with at least `least` occurrences. count: of the place, the upper bound of their sum."""
    best = tree.likeliest(place)
    if best is None or best[1] < least:
        return ()
    return (best,) if count - best[1] < least else tree.branches(place, least)


def _drafted(rows: Sequence[_Row], whole: int, length: int) -> Draft:
    """The draft of these rows. The score is one division, so equal scores are equal numbers and ties are exact."""
    tokens, parents, counts = zip(*rows, strict=True)
    return Draft(tokens, parents, tuple(count / whole for count in counts), sum(counts) / whole, length)
