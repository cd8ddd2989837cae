"""How far a run is, on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablation.record import Record

Groups = Iterator[list[Record]]


def tracked(groups: Groups, total: int, console: Console) -> Groups:
    """The same groups, while `console` shows how many of `total` records are there."""
    return _bar(groups, total, console) if console.is_terminal else _lines(groups, total, console)


def _bar(groups: Groups, total: int, console: Console) -> Groups:
    """Repainted between groups only, never by a thread that would share the machine with a measured round.

    It is wiped while a group is out, so that what the consumer prints on the same terminal stays whole.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # or rich would send stdout, where the records go, to this console
        redirect_stderr=False,
    )
    task = bar.add_task("generating", total=total)
    bar.start()
    try:
        for records in groups:
            bar.advance(task, len(records))
            bar.stop()
            yield records
            bar.start()
            bar.refresh()
    finally:
        bar.stop()


def _lines(groups: Groups, total: int, console: Console) -> Groups:
    done = 0
    for records in groups:
        done += len(records)
        yield records
        about = f" prompt {records[0].id}" if records else ""
        console.print(f"{done}/{total}{about}", soft_wrap=True, markup=False, highlight=False)
