"""How much memory a process took, beside what it is known to have taken."""

import subprocess
import sys

import numpy as np
import pytest

from utils.device.memory import process_peak_mb

HELD = 300_000_000


@pytest.mark.skipif(process_peak_mb() is None, reason="this system does not tell")
def test_the_peak_of_a_process_is_not_that_of_the_process_that_started_it() -> None:
    held = np.ones(HELD, np.uint8)
    code = "from utils.device.memory import process_peak_mb, process_memory_mb as now; print(process_peak_mb(), now())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    peak, now = map(float, told.split())
    mine = process_peak_mb()
    assert mine is not None and mine > held.nbytes / 1e6 and now <= peak < now + HELD / 1e6
