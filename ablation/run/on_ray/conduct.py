"""A plan on a Ray cluster from joining it to the report: this process alone writes."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ablation.plan.file import Experiment
from ablation.plan.grid import Plan
from ablation.results.traces.trace import Tracer
from ablation.run.conduct import conclude, say, say_retried
from ablation.run.job import JobOutcome
from ablation.run.on_ray.cluster import LOCAL, import_ray, joined
from ablation.run.on_ray.dispatch import Dispatcher
from ablation.run.on_ray.work_queue import WorkQueue
from ablation.run.on_ray.worker import PlayedItem, WorkerReady
from ablation.run.on_ray.worker_pool import WorkerPool, WorkerSlot
from ablation.run.progress.bar import told
from ablation.run.results_file import Files, ResultsFile
from sampling.pair.profile import LatencyProfile
from utils.errors import UserError
from utils.interrupt import Interrupt
from utils.text import counted


@dataclass(slots=True)
class RemoteMaker:
    """Players on other machines make the rows: the first one's manifest, and what it says once it is warm."""

    about: Mapping[str, Any]
    ready: WorkerReady | None = None

    def describe(self, plan: Plan, name: str) -> dict[str, Any]:
        """See `RowMaker.describe`."""
        return {**self.about, "fixed": {**self.about["fixed"], "machine": {}}, "hosts": {}}

    def profiles(self, plan: Plan) -> Mapping[str, LatencyProfile]:
        """See `RowMaker.profiles`."""
        return self.ready.profiles if self.ready else {}

    def choices(self) -> Mapping[str, str]:
        """See `RowMaker.choices`."""
        return self.ready.choices if self.ready else {}


def refuse_sides(plan: Plan) -> None:
    """Raises `UserError` for a plan with other engines, of which a machine may have none, or only one."""
    if plan.sides:
        names = ", ".join(side.spec.name for side in plan.sides)
        raise UserError(
            f"--ray given, and the plan has [[engines]] ({names}); expected --shard, or a plan without them"
        )


def conduct_on_ray(
    address: str,
    results: Path,
    experiment: Experiment,
    *,
    rough: bool | None,
    command: str,
    out: Console,
    err: Console,
    resume: bool = False,
    retry_failed: bool = False,
    wait_quiet_s: float = 0.0,
) -> int:
    """Play an experiment on the devices of a cluster into a results file, then report it; the exit status.

    address: see `joined`. rough: see `Chosen`. retry_failed: see `ResultsFile`. wait_quiet_s: see `PlanJob`.
    Raises `UserError`.
    """
    refuse_sides(experiment.plan)
    ray, files = import_ray(address), Files(results)
    start = time.perf_counter()
    say(err, "starting Ray" if address == LOCAL else "joining the Ray cluster")
    with joined(ray, address) as places:
        pool = WorkerPool(ray, experiment, rough, wait_quiet_s, lambda text: say(err, text))
        pool.gather(places)
        names = ", ".join(slot.place.text for slot in pool.slots)
        say(err, f"{counted(len(pool.slots), 'device')} after {time.perf_counter() - start:.1f} s: {names}")
        maker = RemoteMaker(pool.load_first())
        with ResultsFile(
            maker, experiment.plan, experiment.name, files, command, resume, experiment.trace, retry_failed
        ) as written:
            say_retried(written, err)
            outcome, queue = _played(pool, maker, written, err)
    conclude(files.results, outcome, out, err)
    for item in queue.given_up:
        say(err, f"given up, --resume tries again: {item.text}: {item.lost[-1]}")
    if queue and not outcome.stopped:
        say(err, f"{counted(len(queue), 'part')} not played, as no player is left; --resume goes on")
    failed = outcome.failed + outcome.failed_before + len(queue.given_up) + len(queue)
    return 130 if outcome.stopped else 1 if failed else 0


def _played(pool: WorkerPool, maker: RemoteMaker, written: ResultsFile, err: Console) -> tuple[JobOutcome, WorkQueue]:
    """Warm all players up, and let them play what is missing."""
    plan, done = written.plan, written.done
    queue = WorkQueue(plan, done, maker.about["fixed"]["grid"]["target_weights"])
    failed = sum(record.error is not None for record in done.values())
    outcome = JobOutcome(failed_before=failed, resumed=bool(done), shared=True)
    if done:
        say(err, f"{len(done)} of {plan.generations} rows are already there")
    if not queue:
        written.sort()  # which a run that was killed had no time for
        return outcome, queue

    def name(slot: WorkerSlot) -> None:
        slot.host = written.add_host(*pool.machine(slot))

    if unknown := written.unknown_quality():
        say(err, f"measuring what {', '.join(unknown)} cost in quality")
        written.add_quality(pool.of_first(pool.slots[0].player.quality.remote(unknown)))
    say(err, f"warming up {counted(len(plan.configurations), 'configuration')} on each device")
    for slot, ready in pool.prepare():
        name(slot)
        maker.ready = maker.ready or ready
    assert maker.ready, "a pool has a worker"
    if not done:
        say(err, f"on one device: {maker.ready.estimate}")
    with written.writing(outcome) as tracer, told("rows", err) as tell, _stopping(outcome) as interrupt:

        def keep(slot: WorkerSlot, played: PlayedItem) -> None:
            _keep(written, tracer, outcome, slot, played)
            for text in played.said:
                say(err, f"{slot.place.text}: {text}")

        def show(note: str) -> None:
            tell(len(done) + outcome.rows, plan.generations, note)

        dispatcher = Dispatcher(pool, queue, keep, name, show)
        dispatcher.play(interrupt)
        show("")
        written.sort()
    for line in pool.settled(dispatcher.free):
        say(err, line)
    return outcome, queue


def _keep(written: ResultsFile, tracer: Tracer, outcome: JobOutcome, slot: WorkerSlot, played: PlayedItem) -> None:
    """Write a part that is whole: its rounds, then its rows in one piece."""
    records = [replace(record, host=slot.host) for record in played.records]
    tracer.write_text(played.trace)
    written.add(*records)
    for record in records:
        outcome.add(record)


@contextmanager
def _stopping(outcome: JobOutcome) -> Iterator[Interrupt]:
    """Ctrl-C as a request, which the outcome tells."""
    try:
        with Interrupt() as interrupt:
            yield interrupt
            outcome.stopped = interrupt.asked
    except KeyboardInterrupt:
        outcome.stopped = True
        raise
