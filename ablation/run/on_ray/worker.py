"""The pair on one device of a cluster. Nothing here imports torch before its threads are set."""

import utils.device.threads  # noqa: F401
from utils.device.threads import spin_briefly

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.plan.grid import PlanPart, RowKey, WorkUnit
from utils.provenance import HOST, code_digest, versions

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from ablation.results.record import Record
    from ablation.run.execute import PlayedRow
    from sampling.measure.quality import Quality
    from sampling.pair.profile import LatencyProfile


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A player that is warmed up: how long the whole plan would take it, and what its machine has decided."""

    estimate: str
    profiles: Mapping[str, "LatencyProfile"]
    choices: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlayedItem:
    """A part of a plan, whole: its rows, its lines of the trace, and what was said meanwhile."""

    records: "tuple[Record, ...]"
    trace: str
    said: tuple[str, ...]


def about_code() -> dict[str, Any]:
    """What must be the same wherever rows of one file are made."""
    return {"code": code_digest(), "versions": versions()}


class RayWorker:
    """An actor: `load`, then `prepare`, then `play` as often as there are parts.

    environment: variables to set, or with None to drop, before torch is imported. folder: where relative paths of
    models begin, if this machine has it, too.
    """

    def __init__(self, environment: Mapping[str, str | None], folder: str) -> None:
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        spin_briefly(os.environ)
        if Path(folder).is_dir():
            os.chdir(folder)
        self._stack = ExitStack()

    def about(self) -> dict[str, Any]:
        """See `about_code`; nothing is loaded for it."""
        return about_code()

    def load(self, experiment: "Experiment", rough: bool | None, wait_quiet_s: float) -> tuple[str, Any]:
        """Load the pair; the machine's name, and the manifest. rough: see `Chosen`. Raises `UserError`."""
        from ablation.plan.formats import to_load
        from ablation.results.manifest import describe
        from ablation.run.costing.costs import WatchedProfiles
        from ablation.run.prefills import share_prefills
        from sampling.forward.kernels.int8 import decided
        from sampling.loading.options import load_options
        from sampling.loading.pairs import load_pair
        from sampling.pair.pair_engine import PairEngine

        self._stack.enter_context(decided(rough))
        self._experiment, self._wait_quiet_s = experiment, wait_quiet_s
        self._engine = PairEngine(load_pair(load_options(to_load(experiment.pair))))
        share_prefills(self._engine, experiment.plan)
        self._costs = WatchedProfiles(self._engine, experiment.plan)
        return HOST, describe(experiment.plan, self._engine, experiment.name)

    def quality(self, formats: Sequence[str]) -> "dict[str, Quality]":
        """What rounding to each format costs."""
        from rich.console import Console

        from ablation.run.rounded import qualities

        return qualities(self._engine, formats, self._experiment.plan, Console(stderr=True))

    def prepare(self) -> WorkerReady:
        """Measure what rounds cost where that is weighed, and run each configuration once, unmeasured."""
        from rich.console import Console

        from ablation.run.costing.costs import ensure_costs
        from ablation.run.costing.probe import estimated
        from ablation.run.maker import OneEngine

        plan, maker = self._experiment.plan, OneEngine(self._engine)
        ensure_costs(self._engine, plan, Console(stderr=True))
        estimate = estimated(self._engine, plan)
        self._costs.begin()
        return WorkerReady(estimate.text, maker.profiles(plan), maker.choices())

    def play(self, units: Sequence[WorkUnit], done: "Mapping[RowKey, PlayedRow]") -> PlayedItem:
        """All rows of these units that are not `done`."""
        from ablation.results.traces.full_trace import tracer
        from ablation.run.execute import execute
        from ablation.run.job import WatcherPair
        from ablation.run.progress.quiet import QuietWatcher

        plan = replace(self._experiment.plan, part=PlanPart(frozenset(units)))
        traced, lines = self._experiment.trace, StringIO()
        records: list[Record] = []
        said: list[str] = []
        with closing(tracer(lines if traced else None, traced)) as trace_writer:
            watcher = WatcherPair(QuietWatcher(self._wait_quiet_s, said.append), trace_writer)
            for several in execute(self._engine, plan, watcher, done):
                for record in several:
                    trace_writer.record(record)
                    self._costs.add(record)
                    records.append(record)
        return PlayedItem(tuple(records), lines.getvalue(), tuple(said))

    def settle(self) -> list[str]:
        """What no longer holds of the costs that were weighed, a line a format."""
        return self._costs.settle()
