"""A stage in this process, for scripts/gpu_check.py: `python -m ablation.gpu_check STAGE DIR DEVICE SECONDS [tiny]`."""

import utils.device.threads  # noqa: F401

import sys
from pathlib import Path

from ablation.gpu_check.stages import run_stage

if __name__ == "__main__":
    stage, out, device, seconds, *tiny = sys.argv[1:]
    sys.exit(0 if run_stage(stage, Path(out), device, bool(tiny), float(seconds)) else 1)
