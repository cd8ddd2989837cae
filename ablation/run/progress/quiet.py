"""Waiting for a machine that other processes leave free, before each generation."""

import time
from collections.abc import Callable

from ablation.plan.grid import PlannedGeneration
from ablation.run.progress.watcher import NullWatcher
from utils.device.machine import BUSY_CORES, other_cores


class QuietWatcher(NullWatcher):
    """A watcher that lets no generation begin while others keep cores busy, for `limit_s` seconds at most.

    say: is told when it begins to wait, and when it goes on beside the others. sense: cores that others keep busy,
    watched for about a second. `waited_s`: seconds spent, all told.
    """

    def __init__(
        self,
        limit_s: float,
        say: Callable[[str], None],
        sense: Callable[[], float] = other_cores,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waited_s = 0.0
        self._limit_s, self._say, self._sense, self._clock = limit_s, say, sense, clock

    def begin(self, place: PlannedGeneration) -> None:
        """Return when the machine is idle, or the time is up."""
        if self._limit_s <= 0:
            return
        start, said = self._clock(), False
        while (busy := self._sense()) > BUSY_CORES:
            if self._clock() - start >= self._limit_s:
                self._say(f"other processes still keep {busy:.1f} cores busy after {self._limit_s:g} s: continuing")
                break
            if not said:
                self._say(f"waiting for an idle machine: other processes keep {busy:.1f} cores busy")
                said = True
        self.waited_s += self._clock() - start
