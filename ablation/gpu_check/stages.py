"""The stages by name, and how one is run to its end."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ablation.gpu_check.record import STAGE_S, StageRecord
from sampling.loading.devices import prepared

_WIDTH = 120
_STAGES = {"probe": "probe.stage", "right": "right", "fast": "fast.stage", "real": "real", "train": "train"}
_PROBE_S = 45.0
"""Behind which `probe` begins nothing; see `STAGE_S`. One that hangs is ended in time for a minute in all."""

Stage = Callable[[StageRecord], Table]


def run_stage(name: str, folder: Path, device: str, tiny: bool = False, seconds: float = STAGE_S) -> bool:
    """Run a stage, write `folder/NAME.json` as it goes, and show a table at its end; whether nothing failed."""
    folder.mkdir(parents=True, exist_ok=True)
    limit = min(seconds, _PROBE_S) if name == "probe" and not tiny else seconds
    record = StageRecord(name, folder.resolve(), torch.device(device), tiny, limit)
    console = Console(width=_WIDTH)
    tables: list[Table] = []
    if record.device.type == "cuda" and not torch.cuda.is_available():
        record.fail("device", f"{device} given, and torch {torch.__version__} finds no CUDA device")
    else:
        prepared(record.device)
        record.run(lambda: tables.append(_stage(name)(record)))
    right = record.finish()
    for table in tables:
        console.print(table)
    for title, reasons in (("left out", record.left_out), ("FAILED", record.failed)):
        for what, why in reasons.items():
            console.print(f"{title}: {what}: {why}", markup=False, highlight=False, soft_wrap=True)
    return right


def _stage(name: str) -> Stage:
    """The stage, imported now: what it cannot import is its own failure."""
    stage: Stage = getattr(import_module(f"ablation.gpu_check.{_STAGES[name]}"), name)
    return stage
