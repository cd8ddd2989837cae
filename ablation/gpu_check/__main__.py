"""One stage in this process: `python -m ablation.gpu_check STAGE DIR DEVICE [tiny]`. scripts/gpu_check.py calls it."""

import utils.device.threads  # noqa: F401

import sys
from pathlib import Path

from ablation.gpu_check.stages import run_stage

if __name__ == "__main__":
    stage, out, device, *tiny = sys.argv[1:]
    sys.exit(0 if run_stage(stage, Path(out), device, bool(tiny)) else 1)
