"""Threads that spin for ever block while a sleeping team is there, and spin again behind it."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from utils.device.waiting.load import own_cores
from utils.device.waiting.openmp import libgomp
from utils.provenance import ROOT

OURS = "7f00-7f01 r-xp 0000 fe:00 11 /a b/site-packages/torch/lib/libgomp.so.1"
WHEEL = "7f00-7f01 r-xp 0000 fe:00 12 /x/torch.libs/libgomp-a34b.so.1.0.0"
OTHERS = "7f00-7f01 r-xp 0000 fe:00 13 /x/scikit_learn.libs/libgomp-e985.so.1.0.0"
SYSTEM = "7f00-7f01 r-xp 0000 fe:00 14 /usr/lib/libgomp.so.1.0.0"
TORCH = find_spec("torch")
LIBGOMP = Path(TORCH.origin or "" if TORCH else "").parent / "lib" / "libgomp.so.1"
ELSE = "7f00-7f01 rw-p 0000 00:00 0"

# How many threads compute, sleep, and are left of those that slept. Then how often the one that computes beside the
# first gave up its core of its own accord in 200 products: before, with and behind the team that sleeps.
PROGRAM = """
import ctypes, json, sys, time
from pathlib import Path
from utils.device.waiting.openmp import SleepingTeam, library

openmp = ctypes.CDLL(sys.argv[1])

def threads():
    return set(Path("/proc/self/task").iterdir())

def product():
    openmp.GOMP_parallel(openmp.omp_get_thread_num, None, 2, 0)

def gave_up():
    said = [(worker / "status").read_text() for worker in workers]
    return sum(int(each.rpartition("\\nvoluntary_ctxt_switches:")[2].split()[0]) for each in said)

def counted():
    product()  # a thread that sleeps already wakes
    start = gave_up()
    for _ in range(200):
        product()
        time.sleep(0.002)  # so that a thread comes to its wait, whoever else computes
    return gave_up() - start

def settled(enough):
    for _ in range(10):
        found = counted()
        if enough(found):
            break
    return found

before = threads()
product()
workers = threads() - before
team, counts = SleepingTeam(library()), [settled(lambda count: count < 10)]
team.gather(2)
team.gather(2)
sleepers = len(threads() - before - workers)
counts.append(settled(lambda count: count > 50))
team.dismiss()
team.dismiss()
for _ in range(1000):
    if not threads() - before - workers:
        break
    time.sleep(0.01)  # the kernel takes its time to end a thread
counts.append(settled(lambda count: count < 10))
print(json.dumps([len(workers), sleepers, len(threads() - before - workers), *counts]))
"""


@pytest.mark.parametrize(
    ("maps", "found"),
    [
        ([ELSE, OURS, OTHERS], "/a b/site-packages/torch/lib/libgomp.so.1"),
        ([WHEEL, OTHERS, SYSTEM], "/x/torch.libs/libgomp-a34b.so.1.0.0"),
        ([SYSTEM, SYSTEM, ELSE], "/usr/lib/libgomp.so.1.0.0"),
        ([SYSTEM, OTHERS], None),
        ([ELSE], None),
    ],
)
def test_the_library_is_torchs_own(maps: list[str], found: str | None) -> None:
    assert libgomp(maps) == found


@pytest.mark.skipif(not LIBGOMP.exists(), reason="torch has its own libgomp on Linux alone")
@pytest.mark.skipif(len(own_cores()) != 2, reason="two threads are to be as many as cores")
def test_a_sleeping_team_makes_threads_block() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment = {**kept, "GOMP_SPINCOUNT": "INFINITE", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, LIBGOMP], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    workers, sleepers, left, spun, blocked, spun_again = json.loads(run.stdout)
    assert (workers, sleepers, left) == (1, 2, 0)
    assert max(spun, spun_again) < 10 and blocked > 50  # one that wakes just then may sleep once more
