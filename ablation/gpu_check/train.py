"""The stage `train`: how fast the target writes training data here, and what drafters make of as much as fits."""

import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from ablation.gpu_check.calls import call
from ablation.gpu_check.models import save_tiny
from ablation.gpu_check.packed import pack
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.plan.prompts.sets import measured_turns
from sampling.distill.make_head import Corpus, Data
from sampling.distill.training import CHECKPOINT
from sampling.loading.pairs import LoadOptions, load_pair

METHODS = ("mtp", "eagle")
_SEED = 1
_TOKENS, _DRY_TOKENS = 2_000_000, 1500
_DRY_WINDOW = 128
# Seconds for the data and for each drafter; the last one has what is left.
_WRITING_S, _LEARNING_S = 170.0, 170.0
_SIZES = ("--batch-tokens", "8192", "--epochs", "3")
_DRY_SIZES = ("--draft-vocab", "64", "--steps", "2", "--epochs", "1")
_STOPPED = 130  # asked to stop: the same command goes on from the checkpoint
_TOLD = ("held-out tokens a round", "held-out acceptance by position", "last loss", "training time", "data")


class _Enough(Exception):
    """The time for data is over; what was written stays."""


def train(record: StageRecord) -> Table:
    """Data first, so that its rate is known whatever becomes of the rest; then one drafter after the other."""
    options = save_tiny(record.work / "tiny", _DRY_WINDOW) if record.tiny else {}
    target = {"target": options["target"], "dtype": "float32"} if options else {}
    record.measure("data", partial(_write, record, target))
    for method in METHODS:
        record.measure(f"train: {method}", partial(_train, record, target, method), 0.0 if record.tiny else 60.0)
    return _table(record)


def _write(record: StageRecord, target: dict[str, Any]) -> dict[str, float]:
    """Dialogues of the target: on a CPU kept in the user's cache folder; on a card each training writes its own."""
    wanted, known = _DRY_TOKENS if record.tiny else _TOKENS, list[int]()
    pair = load_pair(LoadOptions(**target, device=str(record.device)))
    began = time.monotonic()

    def told(done: int, total: int) -> None:
        known.append(done)
        if time.monotonic() - began > _WRITING_S:
            raise _Enough

    with suppress(_Enough):
        Data((Corpus("self", None),), wanted, measured_turns()).rows(pair, _SEED, lambda _: nullcontext(told))
    took, new = time.monotonic() - began, known[-1] - known[0] if known else 0
    there = known[-1] if known else wanted
    return {"tokens": min(there, wanted), "new_tokens": new, "seconds": took, "tokens_per_s": new / took}


def _train(record: StageRecord, target: dict[str, str], method: str) -> dict[str, Any]:
    """A drafter, its card and its curves in a folder of its own; where the time was short, its course so far."""
    tokens = (record.found.get("data") or {}).get("tokens")
    if not tokens:
        raise LeftOut("there is no data to learn from")
    folder = record.work / method
    sizes = _DRY_SIZES if record.tiny else _SIZES
    options = [word for name, value in target.items() for word in (f"--{name}", value)]
    asked = ["--method", method, "--tokens", str(max(1000, int(tokens))), "--seed", str(_SEED), *sizes, *options]
    seconds = record.left_s if method == METHODS[-1] else min(_LEARNING_S, record.left_s)
    words = ["scripts/train_drafter.py", *asked, "--device", str(record.device), "--out", str(folder)]
    call(words, record.work / f"{method}.txt", seconds, allowed=(0, _STOPPED))
    pack(record, method, (file for file in folder.rglob("*") if file.name != CHECKPOINT))
    return _course(folder)


def _course(folder: Path) -> dict[str, Any]:
    """What the card of a finished training says; of one that was stopped, what its checkpoint holds."""
    if (folder / CHECKPOINT).is_file():
        state = torch.load(folder / CHECKPOINT, map_location="cpu", weights_only=True)
        course = {name: state["history"][name] for name in ("checked", "tokens_per_round", "conditional", "seconds")}
        return {"finished": False, "steps": state["step"], **course}
    if not (folder / "README.md").is_file():
        raise LeftOut("no checkpoint was reached")
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| ")]
    card = {cell[0]: cell[1] for cell in cells if len(cell) == 2}
    return {"finished": True, **{name: card[name] for name in _TOLD if name in card}}


def _table(record: StageRecord) -> Table:
    table = Table("what", "came to")
    if data := record.found.get("data"):
        table.add_row("data", f"{data['tokens']:,.0f} tokens, {data['tokens_per_s']:,.0f} a second")
    for method in METHODS:
        if result := record.found.get(f"train: {method}"):
            table.add_row(method, result.get(_TOLD[0]) or f"stopped behind {result['steps']} steps")
    return table
