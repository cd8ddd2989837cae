"""Rows of the tables as text for people: few digits, units in the headers, unknown as a dash."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from ablation.plan.grid import CONTROL, titled
from ablation.report.tables import predicted
from ablation.report.tables.rates import ledger_of
from sampling.measure.ledger import PARTS, Ledger, ms
from sampling.methods.tables import AR
from utils.numbers.intervals import FEWEST


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text. The first column is a name, the others are facts about it; `notes` stand below it."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


PREDICTED = "predicted"
CALIBRATED = "measured / predicted [95 % interval]"
SPEED_HEADERS: tuple[str, ...] = (
    "configuration",
    "prompts",
    "runs",
    "failed",
    "tokens/s (sd)",
    "median speedup [95 % interval]",
    PREDICTED,
    CALIBRATED,
    "ratio of sums",
    "against AR (p after Holm, n prompts)",
    "output",
)
DRAFT_HEADERS = (
    "configuration",
    "acceptance rate",
    "alpha [95 % interval]",
    "tokens/round [95 % interval]",
    "break-even",
    "c",
    "v",
    "mean gamma (range)",
    "mean H/ln V",
    "exact / tie / BUG / not compared",
    "ended: stop / length / context",
)
LEDGER_HEADERS = ("configuration", "ms/token", *PARTS, "tokens/round", "break-even", "alpha", "at alpha")
FACTOR_HEADERS = (
    "configuration",
    "mean round",
    *(name.removeprefix("factor_") for name in predicted.BEFORE),
    PREDICTED,
    *("AR" if name == "factor_ar" else name.removeprefix("factor_") for name in predicted.AFTER),
    "median speedup",
)
PAIR_HEADERS = ("verdict", "median ratio [95 % interval]", "prompts", "p", "p, Holm", "rank-biserial")


def number(value: float, digits: int = 2) -> str:
    """A number, or a dash where it is unknown."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def interval(middle: float, low: float, high: float, digits: int = 2) -> str:
    """A median with its interval, where it has one."""
    return number(middle, digits) + ("" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]")


def few_notes(prompts: Iterable[float]) -> tuple[str, ...]:
    """What is said once below a table in which some medians rest on too few prompts for an interval."""
    if not any(0 < count < FEWEST for count in prompts):
        return ()
    return (f"No interval of fewer than {FEWEST} prompts: so few cannot bound a median at 95 %.",)


def percent(ratio: float) -> str:
    """How much faster or slower a ratio is. Example: 0.871 -> -12.9 %."""
    return f"{100 * (ratio - 1):+.1f} %"


def title_of(configuration: str) -> str:
    """How tables call a configuration: by its method's title and name; what the control is is said."""
    return f"{CONTROL}: AR again (noise)" if configuration == CONTROL else titled(configuration)


def bug(count: int) -> str:
    """The number of runs that differ from AR without excuse, in a form that nobody overlooks."""
    return f"BUG {count}" if count else "0"


def speed_table(title: str, rows: pd.DataFrame, notes: tuple[str, ...] = ()) -> Table:
    """How fast each configuration is, from rows of the summary; predictions where there are any."""
    lines = SPEED_HEADERS, *(_speed(row) for _, row in rows.iterrows())
    headers, *cells = map(_without_predictions, lines) if rows[predicted.PREDICTED].isna().all() else lines
    return Table(title, headers, tuple(cells), notes)


def _without_predictions(line: tuple[str, ...]) -> tuple[str, ...]:
    first, last = SPEED_HEADERS.index(PREDICTED), SPEED_HEADERS.index(CALIBRATED)
    return line[:first] + line[last + 1 :]


def draft_table(title: str, rows: pd.DataFrame) -> Table:
    """What each configuration drafted and whether its output is right, from rows of the summary."""
    return Table(title, DRAFT_HEADERS, tuple(_draft(row) for _, row in rows.iterrows()), _few_drafted(rows))


def _few_drafted(rows: pd.DataFrame) -> tuple[str, ...]:
    return few_notes(rows.loc[rows["alpha"].notna(), "prompts"])


def ledger_table(title: str, rows: pd.DataFrame) -> Table:
    """Where the time of a token went, from rows of the summary; without those of another output."""
    lines = [(row["configuration"], row_ledger) for _, row in rows.iterrows() if (row_ledger := ledger_of(row))]
    if not lines:
        return Table(title, LEDGER_HEADERS, (), ("No configuration's times are known beside AR's.",))
    notes = (f"Milliseconds a token. {'; '.join(f'{part}: {words}' for part, words in PARTS.items())}.",)
    return Table(title, LEDGER_HEADERS, tuple(_ledger(title_of(name), ledger) for name, ledger in lines), notes)


def factor_table(title: str, rows: pd.DataFrame) -> Table | None:
    """How the price of the mean round becomes the prediction, and that the measured speedup; None without prices."""
    rows = rows[rows[predicted.PREDICTED].notna()]
    if rows.empty:
        return None
    columns = (predicted.AT_MEANS, *predicted.BEFORE, predicted.PREDICTED, *predicted.AFTER, "speedup")
    lines = [(title_of(row["configuration"]), *(number(row[name]) for name in columns)) for _, row in rows.iterrows()]
    said = "; ".join(f"{name.removeprefix('factor_')}: {words}" for name, words in predicted.FACTORS.items())
    note = f"Each row multiplies: mean round x rows x prompts = predicted, and times the others it is measured. {said}."
    return Table(title, FACTOR_HEADERS, tuple(lines), (note.replace("ar: AR's", "AR: its"),))


def _calibrated(ratio: float, low: float, high: float) -> str:
    """A ratio with its interval, and whether that leaves out 1."""
    return interval(ratio, low, high) + (f" {predicted.OFF}" if low > 1.0 or high < 1.0 else "")


def _ledger(title: str, ledger: Ledger) -> tuple[str, ...]:
    parts = (ms(getattr(ledger, part)) for part in PARTS)
    rates = (ledger.tokens, ledger.break_even, ledger.alpha, ledger.needed_alpha)
    return (title, ms(ledger.total), *parts, *(number(math.nan if rate is None else rate) for rate in rates))


def pair_table(title: str, rows: pd.DataFrame) -> Table:
    """The paired tests, from rows of the pairs."""
    return Table(title, PAIR_HEADERS, tuple(_pair(row) for _, row in rows.iterrows()), few_notes(rows["prompts"]))


def _speed(row: pd.Series) -> tuple[str, ...]:
    sd = "" if math.isnan(row["tokens_per_s_sd"]) else f" ({row['tokens_per_s_sd']:.1f})"
    reference = row["configuration"] == AR
    return (
        title_of(row["configuration"]),
        str(row["prompts"]),
        str(row["runs"]),
        str(row["failed"]),
        number(row["tokens_per_s_mean"], 1) + sd,
        # AR's own ratio is 1 by definition: an interval around it would claim a measurement.
        "1.00" if reference else interval(row["speedup"], row["speedup_low"], row["speedup_high"]),
        number(row[predicted.PREDICTED]),
        _calibrated(*row[list(predicted.INTERVAL)]),
        number(row["ratio_of_sums"]),
        _against_ar(row),
        row["lossless"] or "–",
    )


def _against_ar(row: pd.Series) -> str:
    """The verdict with what it rests on."""
    if math.isnan(row["p_holm"]):
        return row["against_ar"] or "–"
    return f"{row['against_ar']} (p = {row['p_holm']:.2g}, n = {row['compared']})"


def _gamma(row: pd.Series) -> str:
    """The mean draft length and the range of those asked for, where the file knows it."""
    if math.isnan(row["mean_gamma"]) or math.isnan(row["min_gamma"]):
        return number(row["mean_gamma"])
    return f"{row['mean_gamma']:.2f} ({row['min_gamma']:.0f} to {row['max_gamma']:.0f})"


def _draft(row: pd.Series) -> tuple[str, ...]:
    return (
        title_of(row["configuration"]),
        number(row["acceptance_rate"], 3),
        interval(row["alpha"], row["alpha_low"], row["alpha_high"], 3),
        interval(row["tokens_per_round"], row["tokens_per_round_low"], row["tokens_per_round_high"]),
        number(row["break_even"]),
        number(row["c"], 3),
        number(row["v"]),
        _gamma(row),
        number(row["mean_normalised_entropy"], 3),
        f"{row['exact']} / {row['tie']} / {bug(row['bug'])} / {row['not_compared']}",
        f"{row['ended_stop']} / {row['ended_length']} / {row['ended_context']}",
    )


def _p(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2g}"


def _pair(row: pd.Series) -> tuple[str, ...]:
    return (
        row["verdict"],
        interval(row["ratio"], row["low"], row["high"], 3),
        str(row["prompts"]),
        _p(row["p"]),
        _p(row["p_holm"]),
        number(row["effect"]),
    )
