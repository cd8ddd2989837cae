"""The tree of one growing text: a suffix automaton with counts."""

import sys
from collections.abc import Sequence

from ngram_assisted.suffix_tree import Branch, Match


class TextTree:
    """Every substring of a text, with its number of occurrences for lengths up to `depth` tokens.

    A state is a class of substrings with the same end positions. Its link is the state of their longest suffix that
    also occurs elsewhere. n tokens make at most 2n states, whatever repeats in the text. A trie of depth 64 would need
    up to 64n nodes. A token costs a few dictionary look-ups. The growth of the automaton is constant on average. The
    counts rise along one chain of links, with one state for each different count among the suffixes of the last `depth`
    tokens.
    """

    def __init__(self, depth: int = 64) -> None:
        self.depth = depth
        self._tokens: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._count = [0]
        self._best = [-1]
        self._whole = 0
        self._last = 0

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self._tokens)

    @property
    def nodes(self) -> int:
        """The number of states."""
        return len(self._next)

    @property
    def memory_bytes(self) -> int:
        """An estimate: one small dictionary, four numbers and four references per state."""
        return self.nodes * (sys.getsizeof({0: 0}) + 4 * 8 + 3 * 28) + len(self) * 8

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            self._append(token)

    def matches(self) -> list[Match[int]]:
        """The places of the text's suffixes, longest first; a suffix that occurs once is left out."""
        matches_found: list[Match[int]] = []
        longest = min(self.depth, len(self)) - 1
        state = self._shorten(self._last, longest)
        longest = min(longest, self._length[state])
        while state > 0:
            link, count = self._link[state], self._count[state]
            shorter = self._length[link]
            if count > 1:
                matches_found.append(Match(shorter + 1, longest, count, state))
            state, longest = link, shorter
        return matches_found

    def likeliest(self, place: int) -> Branch[int] | None:
        token = self._best[place]
        if token < 0:
            return None
        state = self._next[place][token]
        return token, self._count[state], state

    def branches(self, place: int, least: int = 0) -> list[Branch[int]]:
        counts = self._count
        return [(token, counts[state], state) for token, state in self._next[place].items() if counts[state] >= least]

    def _append(self, token: int) -> None:
        self._grow(token)
        before = self._shorten(self._last, min(len(self), self.depth - 1))
        self._tokens.append(token)
        self._last = state = self._next[before][token]
        while state > 0:
            self._count[state] += 1
            state = self._link[state]
        while before >= 0:
            self._rank(before, token)
            before = self._link[before]

    def _rank(self, state: int, token: int) -> None:
        """Update the most frequent continuation after the count of `token` rose.

        On a tie the token that reached the count last wins, because recent text tends to repeat.
        """
        below, best = self._next[state], self._best[state]
        if best < 0 or self._count[below[token]] >= self._count[below[best]]:
            self._best[state] = token

    def _shorten(self, state: int, length: int) -> int:
        """The state of the suffix of `length` tokens of `state`'s substrings."""
        while state > 0 and self._length[self._link[state]] >= length:
            state = self._link[state]
        return state

    def _grow(self, token: int) -> None:
        """The step of Blumer et al. (1985): a state for the whole text, and a split if needed."""
        new = self._state(self._length[self._whole] + 1, {}, 0, 0, -1)
        state, self._whole = self._whole, new
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._split(state, token)

    def _split(self, state: int, token: int) -> int:
        """The state of `state`'s substrings + token, separated from longer substrings with the same end."""
        target, length = self._next[state][token], self._length[state] + 1
        if self._length[target] == length:
            return target
        below, link = dict(self._next[target]), self._link[target]
        clone = self._state(length, below, link, self._count[target], self._best[target])
        self._link[target] = clone
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _state(self, length: int, below: dict[int, int], link: int, count: int, best: int) -> int:
        self._length.append(length)
        self._next.append(below)
        self._link.append(link)
        self._count.append(count)
        self._best.append(best)
        return len(self._next) - 1
