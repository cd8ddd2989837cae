"""A job from warm-up to report, with what a person sees meanwhile: for every command and the session."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ablation.plan.file import Experiment
from ablation.plan.traced import FULL, Traced
from ablation.run.costing.costs import ensure_costs
from ablation.run.job import JobOutcome, PlanJob
from ablation.run.maker import OneEngine
from ablation.run.prefills import share_prefills
from ablation.run.progress.display import display
from ablation.run.results_file import Files, ResultsFile
from ablation.run.rounded import qualities
from engines.fleet import ready
from sampling.pair.local_engine import LocalEngine
from utils.text import counted, shown


def conduct(job: PlanJob, err: Console, first: Callable[[], None] = lambda: None, traced: Traced = False) -> JobOutcome:
    """Measure costs where they are weighed, warm up, say how long it will take, and generate what is missing.

    Progress goes to `err`.

    first: is called between, when it is known that the plan can run. traced: as the job's sink traces.
    """
    if job.done:
        failed = f", {job.outcome.failed_before} of them failed" if job.outcome.failed_before else ""
        say(err, f"{job.done} of {job.plan.generations} rows are already there{failed}")
    if not job.missing:
        return job.outcome
    ensure_costs(job.engine, job.plan, err)
    formats = f" in {', '.join(job.plan.formats)}" if job.plan.formats else ""
    say(err, f"warming up {counted(len(job.plan.configurations), 'configuration')}{formats}")
    expected = job.warm_up()
    if not job.done:
        say(err, expected.text)
        if job.plan.sides:
            names = ", ".join(side.spec.name for side in job.plan.sides)
            when = "take turns with" if job.plan.interleave_engines else "come after"
            say(err, f"not in that time: {names}, which {when} our own engine")
    if traced == FULL:
        say(err, "not in that time: the full trace goes along each prompt's answer once more for every drafter")
    first()
    with display(err, job.done, job.plan.generations) as shown:
        outcome = job.play(shown)
    for line in job.costs.settle():
        say(err, line)
    return outcome


def conduct_into(
    results: Path,
    experiment: Experiment,
    engine: LocalEngine,
    *,
    command: str,
    out: Console,
    err: Console,
    resume: bool = False,
    retry_failed: bool = False,
    wait_quiet_s: float = 0.0,
) -> JobOutcome:
    """Play an experiment into a results file, then write its report and show it in short on `out`.

    Where it plays several formats, what rounding costs is measured first, unless the file's manifest knows.
    command: what asked for it, for the manifest. retry_failed: see `ResultsFile`. wait_quiet_s: see `PlanJob`. Raises
    `UserError`.
    """
    files = Files(results)
    share_prefills(engine, experiment.plan)
    with (
        ready([side.spec for side in experiment.plan.sides], engine, experiment.plan.interleave_engines) as others,
        ResultsFile(
            OneEngine(engine), experiment.plan, experiment.name, files, command, resume, experiment.trace, retry_failed
        ) as written,
    ):
        say_retried(written, err)

        def rate() -> None:
            if unknown := written.unknown_quality():
                written.add_quality(qualities(engine, unknown, experiment.plan, err))

        outcome = conduct(PlanJob(engine, experiment.plan, written, wait_quiet_s, others), err, rate, experiment.trace)
    conclude(files.results, outcome, out, err)
    return outcome


def conclude(results: Path, outcome: JobOutcome, out: Console, err: Console) -> None:
    """Write the report of a results file, show it in short on `out`, and say on `err` what the run has added."""
    from ablation.report.write import write_report

    say(err, "writing the report")
    report = write_report(results)
    report.print(out)
    added = f"{outcome.rows} rows added, {outcome.failed} failed"
    overhead = "" if outcome.overhead is None else f"; {outcome.overhead:.1%} of the time was not generation"
    say(err, f"{added}{overhead}\nresults {results}\nreport  {report.folder / 'index.html'}")


def say_retried(written: ResultsFile, err: Console) -> None:
    """How many rows of an earlier run are played again."""
    if written.retried:
        say(err, f"{counted(written.retried, 'row')} will be played again: what failed, and what goes with it")


def say(console: Console, text: str) -> None:
    """Lines for people, as they are."""
    console.print(shown(text, lines=True), soft_wrap=True, markup=False, highlight=False)
