"""Runs of the mock plan into a file, and what is in it."""

import csv
import os
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ablation.plan.grid import Plan, PlannedGeneration
from ablation.results.record import Record
from ablation.results.store import whole_rows
from ablation.results.table import key
from ablation.run.execute import execute
from ablation.run.job import JobOutcome, PlanJob
from ablation.run.maker import OneEngine
from ablation.run.progress.watcher import NullWatcher, Watcher
from ablation.run.results_file import Files, ResultsFile
from sampling.engine import Engine
from sampling.pair.pair_engine import PairEngine
from tests.ablation.mock_engine import mock_engine, mock_plan

CHANGING = ("started", "cpu_mhz", "other_cores", "threads_blocked", "peak_memory_mb", "joules_per_token", "idle_watts")


class Silent(NullWatcher):
    """A display that shows nothing, and may stop the run after some rows."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.places: list[PlannedGeneration] = []
        self.said: list[str] = []
        self._left = stop_after

    def begin(self, place: PlannedGeneration) -> None:
        self.places.append(place)

    def say(self, text: str) -> None:
        self.said.append(text)

    def record(self, record: Record) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGINT)


def play(
    out: Path, plan: Plan | None = None, engine: PairEngine | None = None, display: Silent | None = None, **options: Any
) -> JobOutcome:
    with results_file(out, plan, engine, **options) as file:
        return PlanJob(engine or mock_engine(), file.plan, file).play(display or Silent())


def results_file(out: Path, plan: Plan | None = None, engine: PairEngine | None = None, **options: Any) -> ResultsFile:
    return ResultsFile(OneEngine(engine or mock_engine()), plan or mock_plan(), "mock", Files(out), "test", **options)


def records_of(engine: Engine, plan: Plan, watcher: Watcher | None = None) -> Iterator[Record]:
    """The records of a plan, one after the other."""
    return chain.from_iterable(execute(engine, plan, watcher))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lasting(path: Path) -> list[dict[str, str]]:
    """The rows without the columns that no two runs share, in the order of their keys."""
    return sorted(
        ({name: cell for name, cell in row.items() if name not in CHANGING} for row in rows(path)),
        key=lambda row: key(row),
    )


def row_ends(content: bytes) -> list[int]:
    """Where the header and each row end."""
    lines = [i + 1 for i in range(len(content)) if content[i : i + 1] == b"\n"]
    return [end for end in lines if whole_rows(content[:end]) == end]


def copied(whole: Path, cut: Path, content: bytes) -> Path:
    cut.write_bytes(content)
    Files(cut).manifest.write_bytes(Files(whole).manifest.read_bytes())
    return cut
