"""How far a run is, on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablation.results.record import Record

Records = Iterator[Record]


def tracked(records: Records, total: int, console: Console) -> Records:
    """The same records, while `console` shows how many of `total` are there."""
    return _bar(records, total, console) if console.is_terminal else _lines(records, total, console)


def _bar(records: Records, total: int, console: Console) -> Records:
    """Repainted between generations only, never by a thread that would share the machine with a measured round.

    It is wiped while a record is out, so that what the consumer prints on the same terminal stays whole.
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
        for record in records:
            bar.advance(task)
            bar.stop()
            yield record
            bar.start()
            bar.refresh()
    finally:
        bar.stop()


def _lines(records: Records, total: int, console: Console) -> Records:
    """A line a prompt: one a generation would drown what else is on stderr."""
    done = 0
    for (id, _, _), group in groupby(records, key=lambda record: (record.id, record.turn, record.repeat)):
        for record in group:
            done += 1
            yield record
        console.print(f"{done}/{total} prompt {id}", soft_wrap=True, markup=False, highlight=False)
