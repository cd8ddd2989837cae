"""Records on stdout as they come: one JSON object a line, or a table for each turn of a prompt."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console

from ablation.commands.show import show, show_batches
from ablation.plan.grid import Plan, RowKey
from ablation.plan.traced import Traced
from ablation.results.record import Record
from ablation.results.traces.full_trace import tracer
from ablation.results.traces.trace import Tracer
from ablation.run.execute import PlayedRow
from ablation.run.job import JobOutcome
from engines.spec import OURS


class PrintedRecords:
    """Where the records of a job go that has no results file. `trace`: an open file for its rounds, or None.

    traced: whether they are written with all that replay needs.
    """

    def __init__(self, plan: Plan, as_json: bool, trace: TextIO | None, traced: Traced = True) -> None:
        self.done: Mapping[RowKey, PlayedRow] = {}
        self._order = [configuration.name for configuration in plan.configurations]
        self._formats = plan.formats
        self._batched = bool(plan.loads)
        self._as_json, self._trace, self._traced = as_json, trace, traced
        self._group: list[Record] = []
        self._others: list[Record] = []

    @contextmanager
    def writing(self, outcome: JobOutcome) -> Iterator[Tracer]:
        """What the trace held goes; at the end a table shows what was finished of the last prompt."""
        if self._trace is not None and Path(self._trace.name).is_file():
            self._trace.truncate(0)
        try:
            with closing(tracer(self._trace, self._traced)) as trace_writer:
                yield trace_writer
        finally:
            self._show()
            self._show_others()

    def add(self, record: Record) -> None:
        """Print a record, or keep it until its table is whole."""
        if self._as_json:
            typer.echo(record.to_json())
            return
        if record.engine not in (None, OURS):
            self._others.append(record)
            return
        self._group.append(record)
        if not self._batched and len(self._group) == len(self._order) * max(1, len(self._formats)):
            self._show()

    def _show(self) -> None:
        """A table for each format of the target's weights, its rows in the order of the plan; of batches one in all."""
        if self._batched:
            show_batches(Console(), self._group)
            return
        group, self._group = sorted(self._group, key=lambda record: self._order.index(record.configuration)), []
        for weights in self._formats or (None,):
            show(Console(), [record for record in group if weights in (None, record.target_weights)])

    def _show_others(self) -> None:
        """What other engines wrote, each by itself: a table a prompt, or of batches one in all."""
        for engine in dict.fromkeys(record.engine for record in self._others):
            theirs = [record for record in self._others if record.engine == engine]
            if self._batched:
                show_batches(Console(), theirs)
                continue
            for asked in dict.fromkeys((record.id, record.turn, record.repeat) for record in theirs):
                show(Console(), [record for record in theirs if (record.id, record.turn, record.repeat) == asked])
