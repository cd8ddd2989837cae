"""Where a text stands in its grammar: which tokens may follow the committed text, and follow drafts behind it.

The matcher moves for good only over committed tokens. It is walked along drafts and taken back; what was found behind
a path of drafts is kept until the next tokens are committed, so a drafter and the target compute each mask once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from sampling.grammar.vocabulary import GrammarVocabulary
from utils.errors import CannotContinue
from utils.text import first_line

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class _Place:
    """A place in the text. mask: `[V]`, the tokens that may follow. over: whether the text has ended before it."""

    mask: Mask
    over: bool = False
    behind: dict[int, "_Place"] = field(default_factory=dict)


class Matching:
    """One text's matcher, behind its committed output and, for a while, behind drafts after it.

    seconds: what the matcher and its masks took so far.
    """

    def __init__(self, vocabulary: GrammarVocabulary, grammar: str, size: int) -> None:
        self._vocabulary, self._matcher, self._size = vocabulary, vocabulary.matcher(grammar), size
        self._read, self._over = 0, False
        self._walked: list[int] = []
        self._root: _Place | None = None
        self.seconds = 0.0

    def bring_up_to(self, output: Sequence[int]) -> None:
        """Move over the tokens that were committed since. Raises `CannotContinue` for one that the grammar forbids."""
        started = perf_counter()
        for token in output[self._read :]:
            self._over = self._over or token in self._vocabulary.ends
            if not self._over:
                self._commit(token)
            root = self._root
            self._root = None if root is None else root.behind.get(token)
        self._read = len(output)
        self.seconds += perf_counter() - started

    def mask(self, path: Iterable[int] = ()) -> Mask | None:
        """The tokens `[V]` that may follow the committed text and these drafts; None where a draft may not."""
        started = perf_counter()
        place, passed = self._here(), list[int]()
        for token in path:
            if not (token < self._size and place.mask[token]):
                return self._timed(started, None)
            passed.append(token)
            if token not in place.behind:
                place.behind[token] = self._found(passed, place.over or token in self._vocabulary.ends)
            place = place.behind[token]
        return self._timed(started, place.mask)

    def may(self, path: Sequence[int], token: int) -> bool:
        """Whether a token may follow these drafts; behind an end of the text nothing may."""
        mask = self.mask(path) if self._vocabulary.ends.isdisjoint(path) else None
        return mask is not None and token < self._size and bool(mask[token])

    def forced(self, limit: int) -> list[int]:
        """The tokens that must follow the committed text, at most so many: the canonical ones of the forced bytes."""
        if self._over or limit < 1:
            return []
        started = perf_counter()
        self._walk(())
        tokens = self._matcher.compute_ff_tokens()[:limit]
        self._check()
        self._timed(started, None)
        return tokens

    def _timed(self, started: float, mask: Mask | None) -> Mask | None:
        self.seconds += perf_counter() - started
        return mask

    def _here(self) -> _Place:
        if self._root is None:
            self._root = self._found((), self._over)
        return self._root

    def _found(self, path: Sequence[int], over: bool) -> _Place:
        """What may follow here. Behind the end of the text nothing but an end may."""
        if over:
            mask = np.zeros(self._size, dtype=np.bool_)
            mask[[end for end in self._vocabulary.ends if end < self._size]] = True
            return _Place(mask, over=True)
        self._walk(path)
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        bits = np.unpackbits(packed, bitorder="little")[: self._size]
        return _Place(np.pad(bits, (0, self._size - len(bits))).view(np.bool_))

    def _walk(self, path: Sequence[int]) -> None:
        """Stand behind these drafts: what is walked beyond their common beginning is taken back."""
        shared = 0
        while shared < min(len(path), len(self._walked)) and path[shared] == self._walked[shared]:
            shared += 1
        if len(self._walked) > shared:
            self._matcher.rollback(len(self._walked) - shared)
        self._matcher.consume_tokens(list(path[shared:]))
        self._check()
        self._walked = list(path)

    def _commit(self, token: int) -> None:
        if self._walked and self._walked[0] == token:
            del self._walked[0]
            return
        self._walk(())
        if not self._matcher.try_consume_tokens([token]):
            self._check()
            raise CannotContinue(f"token {token} was emitted, which the grammar does not allow there")

    def _check(self) -> None:
        """Raises `CannotContinue` where the matcher has given up, as it does silently."""
        if self._matcher.is_error():
            raise CannotContinue(first_line(self._matcher.get_error()))
