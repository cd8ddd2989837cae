"""How far a run is, on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import Console

from ablation.results.record import Record
from ablation.run.bar import Bar, plain_line

Records = Iterator[Record]


def tracked(records: Records, total: int, console: Console) -> Records:
    """The same records, while `console` shows how many of `total` are there."""
    return _bar(records, total, console) if console.is_terminal else _lines(records, total, console)


def _bar(records: Records, total: int, console: Console) -> Records:
    """Repainted between generations only, and wiped while a record is out."""
    with Bar(console, "generating", total) as bar:
        bar.paint()
        for record in records:
            bar.advance()
            with bar.wiped():
                yield record
            bar.paint()


def _lines(records: Records, total: int, console: Console) -> Records:
    """A line a prompt: one a generation would drown what else is on stderr."""
    done = 0
    for (id, _, _), group in groupby(records, key=lambda record: (record.id, record.turn, record.repeat)):
        for record in group:
            done += 1
            yield record
        plain_line(console, done, total, f"prompt {id}")
