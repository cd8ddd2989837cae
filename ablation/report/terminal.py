"""The summary for a terminal: a table where there is room, stacked lines where there is not."""

from collections.abc import Iterator

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablation.report.cells import bug, interval, number, title_of
from ablation.report.summary import ALL, OTHER
from sampling.methods import REFERENCE

WIDE = 96
_HEADERS = ("configuration", "tok/s", "speedup [95 %]", "sums", "acc.", "alpha", "tok/rd", "ids vs AR")


def print_summary(console: Console, summary: pd.DataFrame, warnings: tuple[str, ...]) -> None:
    """Print the rows of all tasks together, processor by processor, and the warnings."""
    rows = summary[summary["task"] == ALL]
    for processor in dict.fromkeys(rows["processor"]):
        part = rows[rows["processor"] == processor]
        count = int(part["prompts"].max())
        console.print(Text(f"{processor}, {count} prompt{'s' if count != 1 else ''}", style="bold"))
        if console.width >= WIDE:
            console.print(_table(part))
        else:
            for line in _stacked(part):
                console.print(line)
    for warning in warnings:
        console.print(Text(f"! {warning}", style="red" if warning.startswith(("BUG", "LOSSY")) else "yellow"))


def _table(rows: pd.DataFrame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, header in enumerate(_HEADERS):
        table.add_column(header, justify="right" if place else "left", overflow="fold", no_wrap=place > 0)
    for _, row in rows.iterrows():
        table.add_row(Text(_name(row)), *_cells(row))
    return table


def _stacked(rows: pd.DataFrame) -> Iterator[Text]:
    for _, row in rows.iterrows():
        yield Text(_name(row), style="bold")
        facts = zip(_HEADERS[1:], _cells(row), strict=True)
        yield Text("  " + ", ".join(f"{header} {cell}" for header, cell in facts if cell not in ("", "–")))


def _name(row: pd.Series) -> str:
    unstamped = row["lossless"] == "LOSSY" and not row["configuration"].endswith("LOSSY")
    marks = [mark for mark, there in (("LOSSY", unstamped), ("slower", _slower(row))) if there]
    failed = [f"{row['failed']} failed"] if row["failed"] else []
    return " ".join([title_of(row["configuration"]), *([f"({', '.join(marks + failed)})"] if marks + failed else [])])


def _slower(row: pd.Series) -> bool:
    return str(row["against_ar"]).startswith("slower")


def _cells(row: pd.Series) -> tuple[str, ...]:
    speedup = interval(row["speedup"], row["speedup_low"], row["speedup_high"])
    return (
        number(row["tokens_per_s_mean"], 1),
        "1.00" if row["configuration"] == REFERENCE else speedup,
        number(row["ratio_of_sums"]),
        number(row["acceptance_rate"]),
        number(row["alpha"]),
        number(row["tokens_per_round"]),
        _ids(row),
    )


def _ids(row: pd.Series) -> str:
    """How many outputs equal AR's, tie with it, or differ and must not."""
    if row["bug"]:
        return bug(row["bug"])
    if row["exact"] + row["tie"]:
        return f"{row['exact']} ={_ties(row['tie'])}"
    return OTHER if row["lossless"] == OTHER else ""


def _ties(count: int) -> str:
    return f", {count} tie" if count else ""
