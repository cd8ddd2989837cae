"""What all texts brought in the last seconds."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import floor

WINDOW_S = 5
_KEPT_S = 60


@dataclass(slots=True)
class Brought:
    """Tokens, drafts, and drafts that were accepted."""

    tokens: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class RecentCounts:
    """Sums by second over the last minute: written by one thread, read by any. clock: seconds that only grow."""

    clock: Callable[[], float] = time.monotonic
    begun_s: float = field(init=False)
    _seconds: deque[tuple[int, Brought]] = field(init=False, default_factory=lambda: deque(maxlen=_KEPT_S + 1))

    def __post_init__(self) -> None:
        self.begun_s = self.clock()

    def add(self, tokens: int, drafted: int, accepted: int) -> None:
        """Count what a round of one text brought."""
        second = floor(self.clock())
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Brought()))
        sums = self._seconds[-1][1]
        sums.tokens += tokens
        sums.drafted += drafted
        sums.accepted += accepted

    def now(self) -> tuple[float, Brought]:
        """The seconds that are looked back on, and what they brought: the last 5, and the one under way."""
        now_s, sums = self.clock(), Brought()
        first = floor(now_s) - WINDOW_S
        for second, brought in tuple(self._seconds):
            if second >= first:
                sums.tokens += brought.tokens
                sums.drafted += brought.drafted
                sums.accepted += brought.accepted
        return now_s - max(self.begun_s, first), sums

    def history(self) -> list[tuple[int, int, int]]:
        """(tokens, drafted, accepted) of each whole second of the last minute, the oldest first."""
        last = floor(self.clock())
        first = max(last - _KEPT_S, floor(self.begun_s))
        by_second = dict(tuple(self._seconds))
        sums = (by_second.get(second, Brought()) for second in range(first, last))
        return [(brought.tokens, brought.drafted, brought.accepted) for brought in sums]
