"""The stage `probe`: something small of everything, in a process that may die, and which line broke where one did."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.table import Table

from ablation.gpu_check.calls import CallFailed, environment
from ablation.gpu_check.record import StageRecord
from utils.device.traced import dumped_lines
from utils.provenance import ROOT

Outcome = dict[str, Any]


def probe(record: StageRecord) -> Table:
    """Each probe's outcome in `probes`, in order; the failed ones are failures of the stage as well."""
    outcomes, names = list[Outcome](), list[str]()
    record.extra["probes"] = outcomes
    while record.left_s > 0 and (not names or len(outcomes) < len(names)):
        for outcome in _run(record, names, len(outcomes)):
            outcomes.append(outcome)
            _note(record, outcome)
    for late in names[len(outcomes) :]:
        record.leave_out(late, "no time was left")
    return _table(record)


def _run(record: StageRecord, names: list[str], first: int) -> Iterator[Outcome]:
    """What a process of its own makes of the probes from this one on, and of the one that ended it.

    names: of all probes, which it says first. Raises `CallFailed` where it ends before it begins one.
    """
    log, dump = record.work / "probe.txt", record.work / "probe.dump"
    begun: Outcome | None = None
    started = False
    with log.open("w", encoding="utf-8") as errors, _process(record, first, dump, errors) as process:
        for line in process.stdout or ():
            said = json.loads(line) if line.startswith("{") else {}
            if "names" in said:
                names[:], started = said["names"], True
            elif "begun" in said:
                begun = said
            elif "name" in said:
                begun = None
                yield said
    if begun is not None:
        yield died(begun["begun"], begun["at"], process.returncode, dump)
    elif not started:
        raise CallFailed.of("the process of the probes", process.returncode, log.read_text("utf-8", "replace"))


def _process(record: StageRecord, first: int, dump: Path, errors: TextIO) -> "subprocess.Popen[str]":
    size = "tiny" if record.tiny else "full"
    words = ["ablation.gpu_check.probe", str(record.device), size, str(first), str(record.left_s), str(dump)]
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


def died(name: str, place: str, status: int, dump: Path) -> Outcome:
    """The outcome of a probe that ended its process: by a signal, or because it hung. place: where it began."""
    told = dump.read_text(encoding="utf-8", errors="replace") if dump.is_file() else ""
    lines = dumped_lines(told)
    how = f"a {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    reason = "it hangs" if told.startswith("Timeout") else f"its process ended with {how}"
    return {"name": name, "ok": False, "error": reason, "at": lines[-1] if lines else place, "lines": lines}


def _note(record: StageRecord, outcome: Outcome) -> None:
    if not outcome["ok"]:
        record.fail(outcome["name"], f"{outcome['at']}: {outcome['error']}")
    elif "left_out" in outcome:
        record.leave_out(outcome["name"], outcome["left_out"])
    else:
        record.write()


def _table(record: StageRecord) -> Table:
    """A line for each kind of probe."""
    table = Table("probe", "right", "left out", "FAILED", "largest difference", "its share", "broke at")
    kinds: dict[str, list[Outcome]] = {}
    for outcome in record.extra["probes"]:
        kinds.setdefault(outcome["name"].partition(":")[0], []).append(outcome)
    for kind, outcomes in kinds.items():
        failed = [outcome for outcome in outcomes if not outcome["ok"]]
        left = sum("left_out" in outcome for outcome in outcomes)
        worst = max(outcomes, key=lambda outcome: outcome.get("share", -1.0))
        numbers = (f"{worst[name]:.2g}" if name in worst else "-" for name in ("difference", "share"))
        right = str(len(outcomes) - left - len(failed))
        table.add_row(kind, right, str(left), str(len(failed)), *numbers, failed[0]["at"] if failed else "")
    return table
