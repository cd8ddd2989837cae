"""Records for people: each distinct answer once, then one table a prompt."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablation.results.record import Record
from sampling.methods import METHODS

_HEADER = ("method", "tokens", "tok/s", "speedup", "accepted", "alpha", "tok/\nround", "vs AR")


def show(console: Console, records: Sequence[Record]) -> None:
    """Print the records of one turn of one prompt."""
    if not records:
        return
    first = records[0]
    console.print(Text(f"prompt {first.id}" + (f", turn {first.turn}" if first.turn > 1 else ""), style="bold"))
    for text in dict.fromkeys(record.text for record in records if record.text is not None):
        methods = ", ".join(_title(record) for record in records if record.text == text)
        console.print(Text(f"{methods}:", style="dim"))
        console.print(Text(text), soft_wrap=True)
    console.print(_table(records))
    for record in records:
        if record.score is not None and record.decode_s and record.new_tokens:
            cost = f"{record.decode_s / record.new_tokens * 1e3:.1f} ms a token"
            said = f"{record.method}: {METHODS[record.method].other}, so no speedup; score {record.score:.3f}, {cost}"
            console.print(Text(said, style="dim"), soft_wrap=True)
        if record.error is not None:
            console.print(Text(f"{record.method} failed: {record.error}", style="red"), soft_wrap=True)


def _table(records: Sequence[Record]) -> Table:
    table = Table(pad_edge=False)
    for place, title in enumerate(_HEADER):
        # A method's name is what has to be typed: other cells break their lines before it does.
        table.add_column(title, justify="right" if place else "left", no_wrap=not place, overflow="fold")
    for record in records:
        table.add_row(*_cells(record))
    return table


def _cells(record: Record) -> tuple[str, ...]:
    return (
        _title(record),
        _number(record.new_tokens, "d"),
        _number(record.tokens_per_s, ".1f"),
        _number(record.speedup, ".2f"),
        _number(record.acceptance_rate, ".2f"),
        _number(record.alpha, ".2f"),
        _number(record.tokens_per_round, ".2f"),
        _sameness(record),
    )


def _title(record: Record) -> str:
    return record.method if record.lossless is not False else f"{record.method} LOSSY"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _sameness(record: Record) -> str:
    other = METHODS[record.method].other
    if other is not None and record.error is None:
        return other
    place = "" if record.first_divergence is None else f" at {record.first_divergence}"
    return (record.divergence_verdict or "") + place
