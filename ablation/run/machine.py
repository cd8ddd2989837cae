"""What else the machine did while a generation ran: other programs spoil a timing silently."""

import time
from datetime import UTC, datetime
from typing import Self

import psutil


class Machine:
    """Enter before a generation, leave after it, then read.

    `other_cores`: processor cores that other processes, or a hypervisor's other guests, kept busy meanwhile,
    on average. `cpu_mhz`: the clock of the cores at the end, where the system tells it. `started`: UTC.
    """

    def __init__(self) -> None:
        self.started = ""
        self.other_cores: float | None = None
        self.cpu_mhz: float | None = None

    def __enter__(self) -> Self:
        self.started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._wall, self._own, self._busy = time.perf_counter(), time.process_time(), _busy_s()
        return self

    def __exit__(self, *exc: object) -> None:
        wall = time.perf_counter() - self._wall
        own = time.process_time() - self._own
        if wall > 0:
            self.other_cores = max(0.0, (_busy_s() - self._busy - own) / wall)
        self.cpu_mhz = _mhz()


def _busy_s() -> float:
    """Core seconds since boot that were not idle, a hypervisor's theft included."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def _mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (NotImplementedError, OSError):
        return None
    return float(frequency.current) if frequency else None
