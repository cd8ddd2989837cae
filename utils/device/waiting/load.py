"""How many cores others keep busy, by what Linux counts. A look takes some 50 us."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_UTIME, _STIME = 11, 12  # of /proc/self/stat, behind the name in brackets


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Ticks since boot: `total` of the cores that this process may use, `busy` of them, and its `own`."""

    total: int
    busy: int
    own: int


def own_cores() -> frozenset[int]:
    """The cores that this process may use; empty where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def read(cores: Collection[int], proc: Path = PROC) -> CpuTicks | None:
    """What the kernel has counted until now; None where it does not tell. A hypervisor's theft is busy."""
    try:
        times = [_times(line) for line in (proc / "stat").read_text().splitlines() if _core(line) in cores]
        own = (proc / "self" / "stat").read_text().rpartition(")")[2].split()
        mine = int(own[_UTIME]) + int(own[_STIME])
    except (OSError, ValueError, IndexError):
        return None
    return CpuTicks(sum(map(sum, times)), sum(sum(each) - each[3] - each[4] for each in times), mine) if times else None


def others(before: CpuTicks, after: CpuTicks, cores: int) -> float | None:
    """Cores that other processes kept busy between two readings, on average; None if no tick has passed."""
    total = after.total - before.total
    if total <= 0:
        return None
    return max(0.0, cores * (after.busy - before.busy - after.own + before.own) / total)


def _core(line: str) -> int | None:
    name = line.partition(" ")[0]
    return int(name[3:]) if name.startswith("cpu") and name[3:].isdigit() else None


def _times(line: str) -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice already."""
    times = [int(number) for number in line.split()[1:9]]
    if len(times) < 5:
        raise ValueError(line)
    return times
