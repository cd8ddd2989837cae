"""Energy of a run, less what the machine takes when it is idle."""

import os
import time
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from utils.device.energy_counters import Counter, cards, zones

SHORTEST_S = 0.2
"""A shorter run is not measured: cards count anew up to ten times a second."""

APART = 0.1
"""Share by which the span between the readings may differ from the time that was measured."""

_IDLE_SPANS, _IDLE_SPAN_S = 3, 0.5


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """Counts of all counters, and when (seconds)."""

    counts: tuple[int, ...]
    at: float


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """joules: all that was used in a span of so many seconds. idle_watts: of the idle machine. parts: whose it is."""

    joules: float
    seconds: float
    idle_watts: float
    parts: str

    def per_token(self, tokens: int, timed_s: float) -> float | None:
        """Joules a token, without the idle machine's.

        timed_s: the measured time of the run. None where the span is another than that, since it holds other work then
        (capturing graphs, a trace's walks) or lacks some (a prompt that was read before); where it was too short; and
        where no more was used than by the idle machine.
        Example: 500 J in 10 s, 20 W idle, 100 tokens -> (500 - 20 * 10) / 100 = 3 J.
        """
        if not tokens or self.seconds < SHORTEST_S or abs(self.seconds - timed_s) > APART * timed_s:
            return None
        net = self.joules - self.idle_watts * self.seconds
        return net / tokens if net > 0 else None


class EnergyMeter:
    """Reads counters together. parts: how many of each, as `2 package, 2 dram`. clock: seconds."""

    def __init__(self, counters: Sequence[Counter], clock: Callable[[], float] = time.perf_counter) -> None:
        self._counters, self._clock = tuple(counters), clock
        counts = Counts(counter.part for counter in counters)
        self.parts = ", ".join(f"{count} {part}" for part, count in counts.items())
        self.idle_watts: float | None = None

    def read(self) -> EnergyReading | None:
        """All counters now; None where one cannot be read."""
        try:
            return EnergyReading(tuple(counter.read() for counter in self._counters), self._clock())
        except OSError:
            return None

    def used(self, before: EnergyReading | None, after: EnergyReading | None) -> EnergyUse | None:
        """What was used between two readings; None where a counter, or the idle power, does not tell."""
        joules = self._joules(before, after)
        if before is None or after is None or joules is None or self.idle_watts is None:
            return None
        return EnergyUse(joules, after.at - before.at, self.idle_watts, self.parts)

    def measure_idle(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Set `idle_watts`: the least of three spans in which this process sleeps, as others may wake in one."""
        watts = []
        for _ in range(_IDLE_SPANS):
            before = self.read()
            sleep(_IDLE_SPAN_S)
            after = self.read()
            joules = self._joules(before, after)
            if before is not None and after is not None and joules is not None:
                watts.append(joules / (after.at - before.at))
        self.idle_watts = min(watts, default=None)

    def _joules(self, before: EnergyReading | None, after: EnergyReading | None) -> float | None:
        if before is None or after is None:
            return None
        seconds = after.at - before.at
        parts = zip(self._counters, before.counts, after.counts, strict=True)
        joules = [counter.joules(first, last, seconds) for counter, first, last in parts]
        return None if None in joules else sum(part for part in joules if part is not None)


@cache
def energy_meter(device: torch.device) -> EnergyMeter | None:
    """What counts the energy of work on a device, its idle power measured; once in a process. None where nothing does.

    On CUDA the device's card must be known. Packages and memory belong to it as far as they can be read.
    """
    counters = counters_of(device)
    if not counters:
        return None
    meter = EnergyMeter(counters)
    meter.measure_idle()
    return meter


def counters_of(device: torch.device) -> tuple[Counter, ...]:
    """Counters for work of this process alone on a device; empty where a part of that work would be missing.

    A process that is bound to some of the cores has no part of the packages' counts: who uses the other cores is
    unknown. One of several that share a model has none at all.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        return ()
    packages = () if _bound() else zones()
    if device.type == "cpu":
        return packages
    if device.type != "cuda":
        return ()
    card = cards([f"GPU-{torch.cuda.get_device_properties(device).uuid}"])
    return (*packages, *card) if card else ()


def _bound() -> bool:
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) != os.cpu_count()
