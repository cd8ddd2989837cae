"""A run from warm-up to report, with what a person sees meanwhile: for the command line and the session."""

from pathlib import Path

from rich.console import Console

from ablation.run.display import display
from ablation.run.job import Outcome, Run
from ablation.run.probe import estimated


def conduct(run: Run, err: Console) -> Outcome:
    """Warm up, say how long it will take, and run what is missing. Progress goes to `err`."""
    total = run.plan.generations
    if run.done:
        failed = f", {run.failed_before} of them failed" if run.failed_before else ""
        _say(err, f"{len(run.done)} of {total} rows are there{failed}")
    if not run.missing:
        return run.outcome
    _say(err, f"warming up {len(run.plan.configurations)} configurations")
    expected = estimated(run.engine, run.plan)
    if not run.done:
        _say(err, expected.text)
    with display(err, len(run.done), total) as shown:
        return run.play(shown)


def reported(results: Path, outcome: Outcome, out: Console, err: Console) -> None:
    """Write the report of a results file, and show it in short on `out`."""
    from ablation.report.write import write_report

    _say(err, "writing the report")
    report = write_report(results)
    report.print(out)
    added = f"{outcome.rows} rows added, {outcome.failed} failed"
    overhead = "" if outcome.overhead is None else f"; {outcome.overhead:.1%} of the time was not generation"
    _say(err, f"{added}{overhead}\nresults {results}\nreport  {report.folder / 'index.html'}")


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False, highlight=False)
