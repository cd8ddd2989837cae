"""Whether OpenMP's threads spin or block where they wait: chosen at the first text, and again where load changes.

A thread that spins is awake when the next product comes. Beside a busy process it holds the core that others of its
team wait for. `scripts/spin_cost.py` measures both. Imported at the start of a program, so that the first choice knows
what the machine did since.
"""

import os
import time
from collections.abc import Callable
from functools import cache, partial
from threading import Lock
from typing import Protocol

from utils.device.waiting import load, openmp
from utils.device.waiting.setting import adapts

LOOK_S = 0.25
CROWDED, CROWDED_S = 0.4, 0.5
"""Block once others have kept so many cores busy that we want, for so many seconds."""
FREE, FREE_S = 0.2, 1.5
"""Spin again once it was less than this, for so many seconds."""


class Team(Protocol):
    """What makes threads block while it is there: see `openmp.SleepingTeam`."""

    def gather(self, size: int) -> None: ...

    def dismiss(self) -> None: ...


class Choice:
    """Call `look` as often as you like: four times a second it reads the load, and chooses.

    read: what the kernel counted. began: when and what, at the start. cores: that we may use. threads: that compute.
    """

    def __init__(
        self,
        read: Callable[[], load.CpuTicks | None],
        began: tuple[float, load.CpuTicks | None],
        cores: int,
        threads: Callable[[], int],
        team: Team,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.blocks = False
        self._read, self._cores, self._threads, self._team, self._clock = read, cores, threads, team, clock
        self._then, self._reading = began
        self._against_s = self._blocked_s = 0.0
        self._lock = Lock()

    def look(self) -> None:
        """Choose anew, where the last look is long enough ago."""
        now = self._clock()
        if now - self._then < LOOK_S or not self._lock.acquire(blocking=False):
            return
        try:
            reading, before = self._read(), self._reading
            busy = load.others(before, reading, self._cores) if before and reading else None
            passed, self._then, self._reading = now - self._then, now, reading
            self._blocked_s += passed if self.blocks else 0.0
            if busy is not None:
                self._weigh(busy, passed)
        finally:
            self._lock.release()

    def begin_anew(self) -> None:
        """Forget the load until now."""
        with self._lock:
            self._blocked_s = self.blocked_s()
            self._then, self._reading, self._against_s = self._clock(), self._read(), 0.0

    def blocked_s(self) -> float:
        """Seconds that threads have blocked until now."""
        return self._blocked_s + (self._clock() - self._then if self.blocks else 0.0)

    def _weigh(self, busy: float, seconds: float) -> None:
        """Change over once the load has spoken against the present way for long enough."""
        threads = self._threads()
        wanted = busy - max(0, self._cores - threads)
        against = wanted < FREE if self.blocks else wanted > CROWDED and threads > 1
        self._against_s = self._against_s + seconds if against else 0.0
        if self._against_s < (FREE_S if self.blocks else CROWDED_S):
            return
        self._against_s = 0.0
        if self.blocks:
            self._team.dismiss()
        else:
            self._team.gather(max(0, self._cores - threads) + 2)
        self.blocks = not self.blocks


def look() -> None:
    """Choose how threads wait, where that is ours to choose. Called between rounds; most calls cost a microsecond."""
    if (choice := _choice()) is not None:
        choice.look()


def begin_anew() -> None:
    """Forget the load until now: another program of ours was at work, and is no longer."""
    if (choice := _choice()) is not None:
        choice.begin_anew()


def blocked_s() -> float | None:
    """Seconds that threads have blocked since the start.

    None where how they wait is not ours to choose, and before the first text, when they spin.
    """
    choice = _choice() if _choice.cache_info().currsize else None
    return None if choice is None else choice.blocked_s()


_CORES = load.own_cores()
_BEGAN = time.monotonic(), load.read(_CORES)


@cache
def _choice() -> Choice | None:
    """The choice of this process, made when its first text begins."""
    cores = load.own_cores()
    began = _BEGAN if cores == _CORES else (time.monotonic(), load.read(cores))
    if not adapts(os.environ) or len(cores) < 2 or began[1] is None:
        return None
    import torch  # seconds, which the start of a program does not have

    library = openmp.library()
    if library is None or torch.get_num_threads() < 2:
        return None
    team = openmp.SleepingTeam(library)
    return Choice(partial(load.read, cores), began, len(cores), torch.get_num_threads, team)
