"""Makes libgomp's threads block where they wait, and spin again, while a program runs.

libgomp reads `GOMP_SPINCOUNT` once. But its manual says that threads spin 100 times at most while there are more OpenMP
threads than cores (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html). So a second team of threads that
sleep makes the first one block. The first team stays as it is: its work is divided as before, bit for bit.
"""

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from threading import Event, Thread

_MAPS = Path("/proc/self/maps")
_TORCH = ("torch/lib", "torch.libs")


class SleepingTeam:
    """A team of OpenMP threads that sleep from `gather` to `dismiss`. library: libgomp."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._end: Event | None = None
        self._thread: Thread | None = None

    def gather(self, size: int) -> None:
        """Start the team, `size` threads; at once where there is one."""
        if self._thread is not None:
            return
        ready, end = Event(), Event()
        self._thread = Thread(target=self._sleep, args=(size, ready, end), name="openmp-sleepers", daemon=True)
        self._end = end
        self._thread.start()
        ready.wait()

    def dismiss(self) -> None:
        """End the team, whose threads are then no longer counted; at once where there is none."""
        if self._thread is not None and self._end is not None:
            self._end.set()
            self._thread.join()
        self._thread = self._end = None

    def _sleep(self, size: int, ready: Event, end: Event) -> None:
        # Each thread of the team only asks for its number. libgomp ends the team with the thread that began it.
        self._library.GOMP_parallel(self._library.omp_get_thread_num, None, size, 0)
        ready.set()
        end.wait()


def library() -> ctypes.CDLL | None:
    """The libgomp that torch has loaded, or None: another runtime of OpenMP, another system, or not loaded yet."""
    if sys.platform != "linux":
        return None
    try:
        path = libgomp(_MAPS.read_text().splitlines())
        return None if path is None else ctypes.CDLL(path)
    except OSError:
        return None


def libgomp(maps: Iterable[str]) -> str | None:
    """Torch's own libgomp among the files of /proc/self/maps, else the only one; None for none, or for several."""
    paths = {line.split(maxsplit=5)[5] for line in maps if "/libgomp" in line}
    found = sorted(path for path in paths if PurePosixPath(path).name.startswith("libgomp"))
    of_torch = [path for path in found if str(PurePosixPath(path).parent).endswith(_TORCH)]
    if of_torch:
        return of_torch[0]
    return found[0] if len(found) == 1 else None
