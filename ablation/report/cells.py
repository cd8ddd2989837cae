"""Rows of the tables as text for people: few digits, units in the headers, unknown as a dash."""

import math
from dataclasses import dataclass

import pandas as pd

from ablation.plan.grid import CONTROL
from sampling.methods import REFERENCE


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text. The first column is a name, the others are facts about it."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


SPEED_HEADERS = (
    "configuration",
    "prompts",
    "runs",
    "failed",
    "tokens/s (sd)",
    "speedup [95 % interval]",
    "ratio of sums",
    "against AR",
    "output",
)
DRAFT_HEADERS = (
    "configuration",
    "acceptance rate",
    "alpha",
    "tokens/round",
    "c",
    "mean gamma",
    "mean H/ln V",
    "exact / tie / BUG / not compared",
    "ended: stop / length / context",
)
PAIR_HEADERS = ("verdict", "ratio [95 % interval]", "prompts", "p", "p, Holm", "rank-biserial")


def number(value: float, digits: int = 2) -> str:
    """A number, or a dash where it is unknown."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def interval(middle: float, low: float, high: float, digits: int = 2) -> str:
    """A median with its interval, where it has one."""
    return number(middle, digits) + ("" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]")


def title_of(configuration: str) -> str:
    """How tables call a configuration: what AR and its control are is said."""
    return {REFERENCE: f"{REFERENCE} (AR)", CONTROL: f"{CONTROL}: AR again (noise)"}.get(configuration, configuration)


def bug(count: int) -> str:
    """The number of runs that differ from AR without excuse, in a form that nobody overlooks."""
    return f"BUG {count}" if count else "0"


def speed_table(title: str, rows: pd.DataFrame) -> Table:
    """How fast each configuration is, from rows of the summary."""
    return Table(title, SPEED_HEADERS, tuple(_speed(row) for _, row in rows.iterrows()))


def draft_table(title: str, rows: pd.DataFrame) -> Table:
    """What each configuration drafted and whether its output is right, from rows of the summary."""
    return Table(title, DRAFT_HEADERS, tuple(_draft(row) for _, row in rows.iterrows()))


def pair_table(title: str, rows: pd.DataFrame) -> Table:
    """The paired tests, from rows of the pairs."""
    return Table(title, PAIR_HEADERS, tuple(_pair(row) for _, row in rows.iterrows()))


def _speed(row: pd.Series) -> tuple[str, ...]:
    sd = "" if math.isnan(row["tokens_per_s_sd"]) else f" ({row['tokens_per_s_sd']:.1f})"
    reference = row["configuration"] == REFERENCE
    return (
        title_of(row["configuration"]),
        str(row["prompts"]),
        str(row["runs"]),
        str(row["failed"]),
        number(row["tokens_per_s_mean"], 1) + sd,
        # AR's own ratio is 1 by definition: an interval around it would claim a measurement.
        "1.00" if reference else interval(row["speedup"], row["speedup_low"], row["speedup_high"]),
        number(row["ratio_of_sums"]),
        row["against_ar"] or "–",
        row["lossless"] or "–",
    )


def _draft(row: pd.Series) -> tuple[str, ...]:
    return (
        title_of(row["configuration"]),
        number(row["acceptance_rate"], 3),
        number(row["alpha"], 3),
        number(row["tokens_per_round"]),
        number(row["c"], 3),
        number(row["mean_gamma"]),
        number(row["mean_normalised_entropy"], 3),
        f"{row['exact']} / {row['tie']} / {bug(row['bug'])} / {row['not_compared']}",
        f"{row['ended_stop']} / {row['ended_length']} / {row['ended_context']}",
    )


def _pair(row: pd.Series) -> tuple[str, ...]:
    return (
        row["verdict"],
        interval(row["ratio"], row["low"], row["high"], 3),
        str(row["prompts"]),
        f"{row['p']:.2g}",
        f"{row['p_holm']:.2g}",
        number(row["effect"]),
    )
