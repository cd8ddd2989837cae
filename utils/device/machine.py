"""What else the machine did while something ran: other programs spoil a timing silently."""

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import psutil

from utils.device.waiting.choice import blocked_s

if TYPE_CHECKING:
    from utils.device.energy import EnergyMeter, EnergyUse

BUSY_CORES = 0.2
"""So many cores kept busy by others are a disturbance; less is what any system does in passing."""

_SHORTEST_S = 0.2


class Machine:
    """Enter before a generation, leave after it, then read.

    `other_cores`: processor cores, of those that this process may use, that other processes, or a hypervisor's other
    guests, kept busy meanwhile, on average; None where it was over too soon to tell, since systems count in hundredths
    of a second. `cpu_mhz`: the clock of the cores at the end, where the system tells it. `started`: UTC. `energy`: what
    was used meanwhile; None without a `meter`, or where it does not tell. `threads_blocked`: the share of the time in
    which OpenMP's threads blocked where they wait; None where how they wait is not ours to choose.
    """

    def __init__(self, meter: "EnergyMeter | None" = None) -> None:
        self.started = ""
        self.meter = meter
        self.other_cores: float | None = None
        self.cpu_mhz: float | None = None
        self.energy: EnergyUse | None = None
        self.threads_blocked: float | None = None

    def __enter__(self) -> Self:
        self.started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._wall, self._own, self._busy = time.perf_counter(), time.process_time(), _busy_s()
        self._energy = self.meter.read() if self.meter else None
        self._blocked = blocked_s() or 0.0
        return self

    def __exit__(self, *exc: object) -> None:
        if self.meter:
            self.energy = self.meter.used(self._energy, self.meter.read())
        wall = time.perf_counter() - self._wall
        cpu_s = time.process_time() - self._own
        if (blocked := blocked_s()) is not None and wall > 0:
            self.threads_blocked = min(1.0, (blocked - self._blocked) / wall)
        if wall >= _SHORTEST_S:
            self.other_cores = max(0.0, (_busy_s() - self._busy - cpu_s) / wall)
        self.cpu_mhz = _mhz()


def other_cores(seconds: float = 1.0) -> float:
    """Cores that others keep busy, watched for so long."""
    with Machine() as machine:
        time.sleep(seconds)
    return machine.other_cores or 0.0


def disturbance(
    cores: Iterable[float | None], effect: str = "times are longer than on an idle machine, and ratios are uncertain"
) -> str | None:
    """What to say of runs during which others kept so many cores busy (None: unknown); None where all was quiet.

    Example: [0.0, 0.7, 1.1] -> "other processes kept up to 1.1 cores busy during 2 of 3 runs: times are longer ...".
    """
    known = list(cores)
    busy = [value for value in known if value is not None and value > BUSY_CORES]
    if not busy:
        return None
    share = f" during {len(busy)} of {len(known)} runs" if len(known) > 1 else ""
    return f"other processes kept up to {max(busy):.1f} cores busy{share}: {effect}"


def _busy_s() -> float:
    """Core seconds since boot that were not idle, a hypervisor's theft included; of the cores that are this process's.

    What runs on cores to which it is not bound, as beside a worker that has some of the machine, is no disturbance.
    """
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not mine or len(mine) == psutil.cpu_count():
        return _not_idle_s(psutil.cpu_times())
    return sum(_not_idle_s(times) for core, times in enumerate(psutil.cpu_times(percpu=True)) if core in mine)


def _not_idle_s(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def _mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (NotImplementedError, OSError):
        return None
    return float(frequency.current) if frequency else None
