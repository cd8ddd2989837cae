"""The summary for a terminal: the comparison table, a line a configuration, and the warnings."""

import math

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from ablation.report.notes import gamma_notes, slow_notes, verdict_notes
from ablation.report.tables.cells import Table, bug, title_of
from ablation.report.tables.paired import TOO_FEW, UNSHOWN
from ablation.report.tables.predicted import INTERVAL
from ablation.report.tables.rates import known, ledger_of
from ablation.report.tables.summary import ALL, OTHER
from ablation.results.computed import BOUND_METHOD
from ablation.results.stamp import LOSSY
from ablation.results.tables.comparison import (
    LEDGER_TITLE,
    MANY_RUNS,
    REFERENCE_WORDS,
    Claim,
    ComparisonLine,
    PredictionRatio,
    Words,
    comparison_table,
    ledger_table,
)
from sampling.methods.tables import AR

_NOT_SHOWN: Claim = "n.s."
_CLAIMS: dict[str, Claim] = {"faster": "faster", "slower": "slower", UNSHOWN: _NOT_SHOWN, TOO_FEW: _NOT_SHOWN}


def print_summary(
    console: Console,
    summary: pd.DataFrame,
    warnings: tuple[str, ...],
    answers: tuple[str, ...] = (),
    formats: tuple[Table, ...] = (),
    bounds: tuple[str, ...] = (),
) -> None:
    """Print the rows of all tasks together, processor by processor, formats, what the plan asked for, and warnings.

    bounds: what is said of bounds among the rows.
    """
    rows = summary[summary["task"] == ALL]
    for processor in dict.fromkeys(rows["processor"]):
        part = rows[rows["processor"] == processor]
        count = int(part["prompts"].max())
        console.print(Text(f"{processor}, n = {count} prompt{'s' if count != 1 else ''}", style="bold"))
        run = part[part["method"] != BOUND_METHOD]
        lines = [_line(row) for _, row in part.iterrows()]
        console.print(comparison_table(lines, console, MANY_RUNS))
        if any(line.claim == _NOT_SHOWN for line in lines):
            console.print(Text("n.s.: not significant, the corrected test shows no difference from AR", style="dim"))
        if any(line.ledger for line in lines):
            console.print(Text(LEDGER_TITLE, style="dim"))
            console.print(ledger_table(lines, console))
        for note in (*verdict_notes(run), *slow_notes(run), *gamma_notes(run), *bounds):
            console.print(Text(note, style="dim"))
    for table in formats:
        print_table(console, table)
    for answer in answers:
        console.print(Text(answer))
    for warning in warnings:
        console.print(Text(f"! {warning}", style="red" if warning.startswith(("BUG", LOSSY)) else "yellow"))


def print_table(console: Console, table: Table) -> None:
    """A table as it is, its notes below; where the terminal is narrow, cells go on in a next line."""
    console.print(Text(table.title, style="bold"))
    drawn = Grid(*(Column(header, overflow="fold") for header in table.headers), box=SIMPLE_HEAD)
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn)
    for note in table.notes:
        console.print(Text(note, style="dim"))


def _line(row: pd.Series) -> ComparisonLine:
    return ComparisonLine(
        title=title_of(row["configuration"]),
        output=tuple(_output(row)),
        lossless=None if row["lossless"] == OTHER else row["lossless"] != LOSSY,
        reference=row["configuration"] == AR,
        tokens_per_s=known(row["tokens_per_s_mean"]),
        speedup=known(row["speedup"]),
        claim=_CLAIMS.get(row["against_ar"], ""),
        interval=None if math.isnan(row["speedup_low"]) else (row["speedup_low"], row["speedup_high"]),
        predicted=known(row["predicted"]),
        over_predicted=_calibrated(row),
        ratio_of_sums=known(row["ratio_of_sums"]),
        acceptance_rate=known(row["acceptance_rate"]),
        alpha=known(row["alpha"]),
        tokens_per_round=known(row["tokens_per_round"]),
        c=known(row["c"]),
        ledger=ledger_of(row),
    )


def _calibrated(row: pd.Series) -> PredictionRatio | None:
    """Measured over predicted, with its interval where it has one."""
    ratio, *ends = (known(row[name]) for name in INTERVAL)
    low, high = ends
    if ratio is None:
        return None
    return PredictionRatio(ratio, None if low is None or high is None else (low, high))


def _output(row: pd.Series) -> list[Words]:
    """How many outputs equal AR's, tie with it, or differ and must not; and how many runs failed."""
    words = []
    if row["bug"]:
        words.append((bug(row["bug"]), "bold red"))
    elif row["configuration"] == AR:
        words.append(REFERENCE_WORDS)
    elif row["exact"] + row["tie"]:
        words.append((f"{row['exact']} exact" + (f", {row['tie']} tie" if row["tie"] else ""), ""))
    elif row["lossless"] == OTHER:
        words.append((OTHER, "dim"))
    return [*words, *([(f"{row['failed']} failed", "red")] if row["failed"] else [])]
