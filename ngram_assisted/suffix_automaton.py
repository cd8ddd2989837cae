"""The suffix automaton of a growing text: where its end stood before, for the longest end that did."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

# How many ends of the text, the longest first, learn of each token where they stood last.
_RENEWED = 64


class Found(NamedTuple):
    """The longest end of a text that stood before: how many tokens it has, and the index of what followed it."""

    length: int
    at: int


class SuffixAutomaton:
    """Every substring of a text: the smallest automaton that reads them (Blumer et al. 1985).

    A state stands for substrings that end in the same places; its link is the state of their longest end that also
    occurs elsewhere. n tokens make at most 2n states, and one token takes constant time on average. The link of the
    whole text is its longest end that occurred before: to find it is no search.

    latest: of several places the last one, else the first. An end that has more than 64 longer ones in other places,
    as only a text that repeats itself over and over has, may be found in an earlier place than the last.
    """

    def __init__(self, latest: bool = True) -> None:
        self.latest = latest
        self._tokens: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._first = [0]
        self._last = [0]
        self._whole = 0

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The text."""
        return tuple(self._tokens)

    @property
    def nodes(self) -> int:
        """Number of states."""
        return len(self._next)

    @property
    def memory_bytes(self) -> int:
        """Estimate: one small dictionary, four numbers and four references a state."""
        return self.nodes * (sys.getsizeof({0: 0}) + 4 * 8 + 3 * 28) + len(self) * 8

    def extend(self, tokens: Sequence[int]) -> None:
        """Let the text go on."""
        for token in tokens:
            self._renew()
            self._grow(token)
            self._tokens.append(token)

    def find(self, pending: Sequence[int] = ()) -> Found | None:
        """The longest end of the text and `pending`, which is not learnt, that something in the text follows.

        Example: in 5 6 7 8 5 6 the end 5 6 stood before, and 7 at index 2 followed: (2, 2).
        """
        reader = Reader(self, self._whole, len(self))
        reader.extend(pending)
        return reader.found()

    def copied(self, found: Found, count: int) -> Sequence[int]:
        """At most `count` tokens that followed what was found."""
        return self._tokens[found.at : found.at + count]

    def step(self, state: int, length: int, token: int) -> tuple[int, int]:
        """The longest end of a substring and `token` that occurs, of a substring of `length` in `state`: both of it."""
        state = self._place(state, length)
        while token not in self._next[state]:
            if not state:
                return 0, 0
            state = self._link[state]
            length = self._length[state]
        return self._next[state][token], length + 1

    def followed(self, state: int, length: int) -> Found | None:
        """The longest end of a substring that something follows."""
        state = self._place(state, length)
        while self._first[state] == len(self) and state:
            state = self._link[state]
            length = self._length[state]
        return Found(length, (self._last if self.latest else self._first)[state]) if state else None

    def _place(self, state: int, length: int) -> int:
        """The state of a substring that was in `state` once: a split may have moved it up."""
        while state and length <= self._length[self._link[state]]:
            state = self._link[state]
        return state

    def _renew(self) -> None:
        """What the text ends with is about to be followed."""
        state, end = self._link[self._whole], len(self)
        for _ in range(_RENEWED):
            if state <= 0:
                break
            self._last[state] = end
            state = self._link[state]

    def _grow(self, token: int) -> None:
        """A state for the whole text, and a split where one is needed."""
        length = len(self) + 1
        new = self._state(length, {}, 0, length, length)
        state, self._whole = self._whole, new
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._split(state, token)

    def _split(self, state: int, token: int) -> int:
        """The state of what `state` stands for + token, apart from longer substrings that end there."""
        target, length = self._next[state][token], self._length[state] + 1
        if self._length[target] == length:
            return target
        below, link = dict(self._next[target]), self._link[target]
        clone = self._state(length, below, link, self._first[target], self._last[target])
        self._link[target] = clone
        while state >= 0 and self._next[state].get(token) == target:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _state(self, length: int, below: dict[int, int], link: int, first: int, last: int) -> int:
        self._length.append(length)
        self._next.append(below)
        self._link.append(link)
        self._first.append(first)
        self._last.append(last)
        return len(self._next) - 1


class Reader:
    """The longest end of what is read that occurs in an automaton's text, which may go on growing meanwhile."""

    def __init__(self, automaton: SuffixAutomaton, state: int = 0, length: int = 0) -> None:
        self.automaton = automaton
        self._state, self._length = state, length

    def extend(self, tokens: Sequence[int]) -> None:
        """Read on."""
        for token in tokens:
            self._state, self._length = self.automaton.step(self._state, self._length, token)

    def found(self) -> Found | None:
        """The longest end that something follows there."""
        return self.automaton.followed(self._state, self._length)

    def ahead(self, tokens: Sequence[int]) -> "Reader":
        """Another reader that has read these tokens as well."""
        other = Reader(self.automaton, self._state, self._length)
        other.extend(tokens)
        return other
