"""A plan played on an engine: what is missing is generated, and every record goes where the job was told."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from ablation.plan.grid import Plan, PlannedGeneration, RowKey
from ablation.results.record import Record
from ablation.results.traces.trace import Tracer
from ablation.run.costing.costs import WatchedProfiles
from ablation.run.costing.probe import estimated
from ablation.run.execute import PlayedRow, execute
from ablation.run.progress.estimate import Estimate
from ablation.run.progress.quiet import QuietWatcher
from ablation.run.progress.watcher import Watcher
from engines.home import ExternalEngine
from sampling.engine import Engine
from utils.device.waiting import choice
from utils.events import Round
from utils.interrupt import Interrupt
from utils.parameter import Values
from utils.provenance import HOST

T = TypeVar("T")


class Display(Watcher, Protocol):
    """Shows how far a job is, between generations only."""

    def record(self, record: Record) -> None: ...

    def say(self, text: str) -> None: ...


@dataclass(slots=True)
class JobOutcome:
    """What a job added: rows and failed ones among them, and whether Ctrl-C ended it.

    failed_before: failed rows of earlier runs. overhead: share of the time that was not generation; None where
    a run went on, as it then repeats a reference that is no row, and where rows share times: those of batches, and of
    prefills.
    """

    rows: int = 0
    failed: int = 0
    failed_before: int = 0
    stopped: bool = False
    resumed: bool = False
    shared: bool = False
    generating_s: float = 0.0
    seconds: float = 0.0

    @property
    def overhead(self) -> float | None:
        return 1.0 - self.generating_s / self.seconds if self.seconds and not (self.resumed or self.shared) else None

    def add(self, record: Record) -> None:
        """Count a row."""
        self.rows += 1
        self.failed += record.error is not None
        self.generating_s += record.wall_s or 0.0


class Sink(Protocol):
    """Where records go: a results file or the screen. `done`: what is there already and is not run again."""

    done: Mapping[RowKey, PlayedRow]

    def writing(self, outcome: JobOutcome) -> AbstractContextManager[Tracer]:
        """Entered once everything is loaded and warm, left when the job has ended; gives what writes its trace."""

    def add(self, record: Record) -> None:
        """Keep a record; it is safe when this returns."""


@dataclass
class PlanJob:
    """A plan, the engine that plays it and where its records go; first `warm_up`, then `play`.

    others: the engines of the plan's sides, by name. wait_quiet_s: seconds at most that each generation waits for other
    processes to leave the machine free.
    """

    engine: Engine
    plan: Plan
    sink: Sink
    wait_quiet_s: float = 0.0
    others: Mapping[str, ExternalEngine] = field(default_factory=dict)
    outcome: JobOutcome = field(init=False)
    costs: WatchedProfiles = field(init=False)

    def __post_init__(self) -> None:
        failed = sum(earlier.error is not None for earlier in self.sink.done.values())
        self.costs = WatchedProfiles(self.engine, self.plan)
        shared = bool(self.plan.loads or self.plan.sides or self.plan.share_prefill)
        self.outcome = JobOutcome(failed_before=failed, resumed=bool(self.done), shared=shared)

    @property
    def done(self) -> int:
        """Generations that are there."""
        return len(self.sink.done)

    @property
    def missing(self) -> int:
        """Generations still to be made."""
        return self.plan.generations - self.done

    def warm_up(self) -> Estimate:
        """Run each configuration once, unmeasured; about how long the whole plan will take."""
        return estimated(self.engine, self.plan)

    def play(self, display: Display) -> JobOutcome:
        """Generate what is missing; each record is safe before the next generation starts.

        The first Ctrl-C ends it after the generation under way, the second at once.
        """
        self.costs.begin()
        quiet = QuietWatcher(self.wait_quiet_s, display.say)
        with self.sink.writing(self.outcome) as tracer, _timed(self.outcome, quiet), Interrupt() as interrupt:
            watcher = WatcherPair(WatcherPair(display, quiet), tracer)
            for records in self._all(watcher):
                for record in records:
                    if self.plan.part:  # whose rows will stand beside those of other machines
                        record = replace(record, host=HOST)
                    try:
                        display.record(record)  # first: a bar makes way for what is printed
                    finally:
                        tracer.record(record)
                        self.sink.add(record)
                    self.outcome.add(record)
                    self.costs.add(record)
                if interrupt.asked:
                    self.outcome.stopped = True
                    break
        return self.outcome

    def _all(self, watcher: Watcher) -> Iterator[Iterable[Record]]:
        """The records of all engines: none has the machine while another is timed."""
        ours = execute(self.engine, self.plan, watcher, self.sink.done)
        if self.plan.interleave_engines:
            plans = {side.spec.name: self.plan.of(side) for side in self.plan.sides}
            theirs = ((execute(self.others[name], plan, watcher, self.sink.done), plan) for name, plan in plans.items())
            several = [
                (_afresh(ours), self.plan.own_generations),
                *((turns, plan.generations) for turns, plan in theirs),
            ]
            yield from abreast(several, sum(1 for each in self.plan.passes() for _ in self.plan.played(each)))
            return
        yield from ours
        for side in self.plan.sides:
            other = self.others[side.spec.name]
            yield from execute(other, self.plan.of(side), watcher, self.sink.done)
            other.close()


def abreast(several: Sequence[tuple[Iterator[T], int]], parts: int) -> Iterator[T]:
    """What comes of several, each with how many it has: a part of the first, of the second, ..., then the next parts.

    Example: (a, b) and (c, d, e, f) in 2 parts -> a, c, d, b, e, f.
    """
    taken = dict.fromkeys(range(len(several)), 0)
    while taken:
        place = min(taken, key=lambda place: taken[place] * parts // max(1, several[place][1]))
        taken[place] += 1
        try:
            yield next(several[place][0])
        except StopIteration:
            del taken[place]


def _afresh(turns: Iterator[T]) -> Iterator[T]:
    """The turns of our engine, before each of which another's server was at work, and is no longer."""
    try:
        while True:
            choice.begin_anew()
            yield next(turns)
    except StopIteration:
        return


@contextmanager
def _timed(outcome: JobOutcome, quiet: QuietWatcher) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    except KeyboardInterrupt:
        outcome.stopped = True
        raise
    finally:
        outcome.seconds = time.perf_counter() - start - quiet.waited_s


class WatcherPair:
    """Two watchers as one."""

    def __init__(self, first: Watcher, second: Watcher) -> None:
        self._watchers = (first, second)

    def begin(self, place: PlannedGeneration) -> None:
        for watcher in self._watchers:
            watcher.begin(place)

    def prompted(self, place: PlannedGeneration, engine: Engine, values: Values, ids: Sequence[int]) -> None:
        for watcher in self._watchers:
            watcher.prompted(place, engine, values, ids)

    def round(self, place: PlannedGeneration, round: Round) -> None:
        for watcher in self._watchers:
            watcher.round(place, round)

    def ended(self, place: PlannedGeneration) -> None:
        for watcher in self._watchers:
            watcher.ended(place)

    def failed(self, place: PlannedGeneration, error: str) -> None:
        for watcher in self._watchers:
            watcher.failed(place, error)
