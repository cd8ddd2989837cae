"""No parameter makes a process take what a machine has not: at a billion it is refused, or it is harmless."""

import json
import subprocess
import sys

from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import METHODS
from utils.provenance import ROOT

SECONDS = 5.0


def test_every_parameter_at_its_largest() -> None:
    """In four gigabytes, and five seconds each; a setting that is a method's name is no number."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.hostile.sizes"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr[-2000:]
    *told, last = map(json.loads, run.stdout.splitlines())
    assert {one["parameter"] for one in told} == {name for name in PARAMETERS if name not in METHODS}
    assert [one for one in told if "failed" in one] == []
    assert [one for one in told if one["seconds"] > SECONDS] == []
    assert last["peak_mb"] * 1e6 / 2**20 < 4096
