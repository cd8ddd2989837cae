"""Suffix decoding's drafts (arXiv 2411.04975), from any tree that counts what follows what.

A tree holds every substring of its texts up to a depth D, with its number of occurrences. The context's
last m tokens are matched for m = 1, 2, ...; below each match the counts say how likely each continuation
was, and the match whose drafts promise the most accepted tokens wins.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

C = TypeVar("C")
Branch = tuple[int, int, C]

_NEARLY = 1 - 1e-9  # a bound that equals the best score but for rounding must not be cut off: ties count


@dataclass(frozen=True, slots=True)
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


@lru_cache(maxsize=64)
def _deepest(limits: Limits, depth: int) -> tuple[int, ...]:
    """How deep a draft may go after a match of each length from 0 to `depth`, where the tree ends."""
    return tuple(min(limits.tokens(length), limits.room, depth - length) for length in range(depth + 1))


class SuffixTree(Protocol[C]):
    """What drafting asks of a tree that has read the context; a branch is (token, count, place)."""

    depth: int

    def matches(self) -> Sequence[Match[C]]:
        """Where ends of the context occur, longest first; the whole context is no end."""

    def likeliest(self, place: C) -> Branch[C] | None:
        """The most frequent continuation by one token."""

    def branches(self, place: C) -> Iterable[Branch[C]]:
        """All continuations by one token, in any order."""


class After(Generic[C]):
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
    deepest = _deepest(limits, tree.depth)
    bounds = [(max(deepest[match.shortest : match.longest + 1]), match) for match in tree.matches()]
    bounds.sort(key=lambda bound: bound[0], reverse=True)
    best = Draft()
    for most, match in bounds:
        floor = max(above, best.score)
        if most < floor:
            break
        drafts = _trees if limits.tree and limits.tokens(match.longest) > 1 else _paths
        for draft in drafts(tree, match, limits, deepest, floor):
            if draft.score > above and (draft.score, draft.match_length) > (best.score, best.match_length):
                best = draft
    return best


def _paths(
    tree: SuffixTree[C], match: Match[C], limits: Limits, deepest: Sequence[int], floor: float
) -> Iterator[Draft]:
    """The longest path below a match, for the longest end of the context that allows it: no other scores more."""
    tokens, counts = _path(tree, match, max(deepest[match.shortest : match.longest + 1]), limits.min_prob, floor)
    if tokens:
        length = match.longest
        while deepest[length] < len(tokens):
            length -= 1
        yield _drafted(tokens, range(-1, len(tokens) - 1), counts, match.count, length)


def _trees(
    tree: SuffixTree[C], match: Match[C], limits: Limits, deepest: Sequence[int], floor: float
) -> Iterator[Draft]:
    """The trees below a match, one for each limit of size and depth, with the longest end that has it."""
    tried: set[tuple[int, int]] = set()
    for length in range(match.longest, match.shortest - 1, -1):
        size = limits.tokens(length), deepest[length]
        if size not in tried and size[1] >= floor:
            tried.add(size)
            yield _drafted(*_tree(tree, match, *size, limits.min_prob, floor), match.count, length)


def _path(
    tree: SuffixTree[C], match: Match[C], deep: int, min_prob: float, floor: float
) -> tuple[list[int], list[int]]:
    """Tokens and counts along the most frequent continuation; none where the score stays below `floor`.

    The product of the count ratios along the path is the last count over the first one.
    """
    tokens: list[int] = []
    counts: list[int] = []
    place, whole, missing = match.place, match.count, floor * match.count * _NEARLY
    while len(tokens) < deep and (branch := tree.likeliest(place)) is not None:
        token, count, place = branch
        if count / whole < min_prob:
            break
        if count * (deep - len(tokens)) < missing:
            return [], []
        missing -= count
        tokens.append(token)
        counts.append(count)
    return tokens, counts


def _tree(
    tree: SuffixTree[C], match: Match[C], size: int, deep: int, min_prob: float, floor: float
) -> tuple[list[int], list[int], list[int]]:
    """Tokens, parents, counts: the most probable continuation of all drafted so far, again and again.

    On a tie the older. None where the score stays below `floor`.
    """
    tokens: list[int] = []
    parents: list[int] = []
    counts: list[int] = []
    heap: list[tuple[int, int, int, int, int, C]] = []
    pushed = 0
    row, depth, place, missing = -1, 0, match.place, floor * match.count * _NEARLY
    while len(tokens) < size:
        if depth < deep:
            for token, count, below in tree.branches(place):
                if count / match.count >= min_prob:
                    pushed += 1
                    heapq.heappush(heap, (-count, pushed, token, row, depth + 1, below))
        if not heap:
            break
        negative, _, token, parent, depth, place = heapq.heappop(heap)
        if -negative * (size - len(tokens)) < missing:
            return [], [], []
        missing += negative
        row = len(tokens)
        tokens.append(token)
        parents.append(parent)
        counts.append(-negative)
    return tokens, parents, counts


def _drafted(tokens: Iterable[int], parents: Iterable[int], counts: Sequence[int], whole: int, length: int) -> Draft:
    """One division for the score: equal scores are equal numbers, so that ties are seen."""
    probs = tuple(count / whole for count in counts)
    return Draft(tuple(tokens), tuple(parents), probs, sum(counts) / whole, length)
