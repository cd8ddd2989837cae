"""Many prompts at a time: what all texts have together, what each has, and where drafts stop paying."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.content import ReportSection
from ablation.report.load import in_order
from ablation.report.plots.figure import WIDTH, Plot, blank, slug, style, whiskers
from ablation.report.plots.layout import label_points, legend_below
from ablation.report.tables.cells import Table, few_notes, interval, number, title_of
from ablation.report.tables.summary import ALL
from sampling.methods.tables import AR

TITLE = "Many at a time"
# Points of configurations stand so far apart at one size, on a logarithmic axis of base 2.
_BESIDE = 0.05
# A plan may play tasks by themselves. Where it does not, all tasks of a pass have the same figure.
_PASS = ["seed", "repeat", "task"]
_HEADERS = (
    "at a time", "configuration", "tok/s in all", "ratio of tok/s in all", "predicted ratio",
    "a text's median speedup [95 % interval]",
    "tok/round", "rows a forward", "tpot, ms: p50, p99", "live",
)  # fmt: skip
_LOAD_HEADERS = (
    "prompts/s", "at a time", "configuration", "tok/s in all", "ttft, s: p50, p99", "tpot, ms: p50, p99",
    "queued, s: p50, p99", "in time, texts/s",
)  # fmt: skip
_MEANING = (
    "tok/s in all: tokens of all texts over the seconds of all rounds, the median over passes; their ratio: divided "
    "by that of plain decoding at the same batch size. A text's speedup is against plain decoding of the same prompt "
    "at the same batch size. Rows a forward: rows that the target reads at once, one for each live text and its "
    "drafts. Predicted: S = E (n0 + B) / (n0 + B (k + 1)) for B live texts, k drafts and E tokens a round, drafting "
    "left out. Live: texts in a round; the last ones of a file are fewer."
)
_LOAD_MEANING = (
    "Prompts arrive at random (Poisson), by a clock of rounds and prefills. ttft is from arrival, waiting for a place "
    "included; tok/s over all the time. In time: texts a second that kept the plan's slo."
)


@dataclass(frozen=True, slots=True)
class BatchReportLine:
    """What plain decoding's rounds take by their rows: `base_s + row_s * rows`."""

    base_s: float
    row_s: float

    @property
    def knee(self) -> float:
        """Rows from which on their own cost is more than what every forward costs."""
        return self.base_s / self.row_s

    def speedup(self, live: float, drafts: float, tokens: float) -> float:
        """What so many drafts are worth that bring so many tokens a round, in so many texts: see `_MEANING`."""
        return tokens * (self.knee + live) / (self.knee + live * (drafts + 1.0))

    @classmethod
    def through(cls, points: pd.DataFrame) -> "BatchReportLine | None":
        """By least squares through rows and seconds; None where they are too few, or rows cost nothing."""
        if points["rows"].round(3).nunique() < 2:
            return None
        slope, base = np.polyfit(points["rows"], points["round_s"], 1)
        return cls(float(base), float(slope)) if slope > 0 and base > 0 else None


def batches_section(frame: pd.DataFrame, summary: pd.DataFrame) -> ReportSection | None:
    """Tables and plots of each processor and format; None where prompts were answered one after the other."""
    rows = frame[~frame["failed"] & (frame["throughput_tps"].notna() | (frame["rate"] > 0.0))]
    if rows.empty:
        return None
    tables, plots, notes = list[Table](), list[Plot](), list[str]()
    by = ["processor_alone", "engine", "target_weights"]
    for (processor, engine, weights), part in rows.groupby(by, observed=True, sort=False):
        name = f"{processor}" + (f", {engine}" if frame["engine"].nunique() > 1 else "")
        name += f", {weights} weights" if frame["target_weights"].nunique() > 1 else ""
        closed, open_ = part[part["rate"] == 0.0], part[part["rate"] > 0.0]
        if len(closed):
            units = _units(closed, summary)
            line = BatchReportLine.through(units[units["configuration"] == AR])
            tables.append(_table(name, units, line))
            plots += _plots(name, units, line)
            if line is None:
                notes.append(f"{name}: no line through plain decoding's rounds: too few sizes, or rows cost nothing.")
        if len(open_):
            tables.append(_load_table(name, open_))
    return ReportSection(TITLE, tuple(tables), None, tuple(plots), tuple(notes))


def _units(rows: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each size and configuration, by size."""
    order = {name: place for place, name in enumerate(in_order(rows))}
    of_all = summary[summary["task"] == ALL].set_index(["processor", "configuration"])
    lines = []
    for (batch, name), part in rows.groupby(["batch", "configuration"], observed=True):
        summary_row: Any = of_all.loc[(part["processor"].astype(str).iloc[0], str(name))]
        live, drafts = part["live_rows"].mean(), part["drafted"].sum() / part["rounds"].sum()
        lines.append(
            {
                "batch": round(float(str(batch))),
                "configuration": str(name),
                "place": order[str(name)],
                "throughput": part.groupby(_PASS, observed=True)["throughput_tps"].first().median(),
                "live": live,
                "drafts": drafts,
                "rows": live * (1.0 + drafts),
                "tokens": part["new_tokens"].sum() / part["rounds"].sum(),
                "round_s": (part["decode_s"] / part["rounds"]).mean(),
                "tpot": part["tpot_ms"].median(),
                "tpot_99": part["tpot_ms"].quantile(0.99),
                **{column: summary_row[column] for column in ("speedup", "speedup_low", "speedup_high", "compared")},
            }
        )
    units = pd.DataFrame(lines)
    plain = units[units["configuration"] == AR].set_index("batch")["throughput"]
    units["ratio"] = units["throughput"] / units["batch"].map(plain)
    return units.sort_values(["batch", "place"], ignore_index=True)


def _table(name: str, units: pd.DataFrame, line: BatchReportLine | None) -> Table:
    fitted = (
        ()
        if line is None
        else (
            f"Plain decoding's rounds: {line.base_s * 1e3:.1f} ms and {line.row_s * 1e3:.2f} ms a row, so a knee at "
            f"n0 = {line.knee:.1f} rows.",
        )
    )
    return Table(
        f"Batches under {name}",
        _HEADERS,
        tuple(_cells(unit, line) for _, unit in units.iterrows()),
        (*fitted, _MEANING, *few_notes(units["compared"])),
    )


def _cells(unit: pd.Series, line: BatchReportLine | None) -> tuple[str, ...]:
    reference = unit["configuration"] == AR
    drafts = unit["configuration"] != CONTROL and not reference and line is not None
    predicted = line.speedup(unit["live"], unit["drafts"], unit["tokens"]) if drafts and line else math.nan
    return (
        str(unit["batch"]),
        title_of(unit["configuration"]),
        number(unit["throughput"], 1),
        "1.00" if reference else number(unit["ratio"]),
        number(predicted),
        "1.00" if reference else interval(unit["speedup"], unit["speedup_low"], unit["speedup_high"]),
        number(unit["tokens"]),
        number(unit["rows"], 1),
        f"{number(unit['tpot'], 1)}, {number(unit['tpot_99'], 1)}",
        number(unit["live"], 1),
    )


def _load_table(name: str, rows: pd.DataFrame) -> Table:
    """The load curve: as prompts come faster."""
    lines = []
    order = {name: place for place, name in enumerate(in_order(rows))}
    groups = rows.groupby(["rate", "batch", "configuration"], observed=True)
    for (rate, batch, name_there), part in sorted(groups, key=lambda group: (*group[0][:2], order[str(group[0][2])])):
        waited = part["queued_s"] + part["ttft_s"]
        passes = part.groupby(_PASS, observed=True)
        lines.append(
            (
                f"{rate:g}",
                f"{batch:g}",
                title_of(str(name_there)),
                number(passes["e2e_throughput_tps"].first().median(), 1),
                _percentiles(waited, 2),
                _percentiles(part["tpot_ms"], 1),
                _percentiles(part["queued_s"], 2),
                number(passes["goodput_rps"].first().median()),
            )
        )
    return Table(f"Prompts that arrive, under {name}", _LOAD_HEADERS, tuple(lines), (_LOAD_MEANING,))


def _percentiles(values: pd.Series, digits: int) -> str:
    return ", ".join(number(float(values.quantile(share)), digits) for share in (0.5, 0.99))


def _plots(name: str, units: pd.DataFrame, line: BatchReportLine | None) -> Iterator[Plot]:
    """Throughput and speedup over the size, and what a text has against what all have."""
    if units["batch"].nunique() < 2:
        return
    configurations = [name for name in dict.fromkeys(units["configuration"]) if name != CONTROL]
    yield _over_sizes(name, units, configurations, line)
    yield _against_all(name, units, configurations)


def _over_sizes(name: str, units: pd.DataFrame, configurations: Sequence[str], line: BatchReportLine | None) -> Plot:
    """Throughput and speedup over the size."""
    figure, (whole, gain) = blank(f"{TITLE}, {name}", WIDTH, 4.2, 1, 2)
    for place, configuration in enumerate(configurations):
        part = units[units["configuration"] == configuration]
        whole.plot(part["batch"], part["throughput"], label=title_of(configuration), **style(place))
        if configuration != AR:
            errors = whiskers(part["speedup"], part["speedup_low"], part["speedup_high"])
            # Side by side, or the intervals of configurations would hide each other.
            beside = part["batch"] * 2.0 ** (_BESIDE * (place - len(configurations) / 2))
            gain.errorbar(beside, part["speedup"], yerr=errors, **style(place))
            if line is not None:
                predicted = [line.speedup(*row) for row in part[["live", "drafts", "tokens"]].to_numpy()]
                gain.plot(part["batch"], predicted, color=style(place)["color"], linestyle=":", linewidth=1.0)
    gain.axhline(1.0, color="black", linewidth=1.0)
    for axis, label in ((whole, "tokens/s of all texts"), (gain, "a text's median speedup over AR")):
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted(units["batch"].unique()), [str(size) for size in sorted(units["batch"].unique())])
        axis.set_xlabel("texts at a time", fontsize=9)
        axis.set_ylabel(label, fontsize=9)
    legend_below(figure)
    dotted = " Dotted: predicted from plain decoding's rounds, drafting left out." if line is not None else ""
    return Plot(
        f"batches_{slug(name)}",
        f"Throughput and median speedup by texts at a time, {name}. Left: tokens of all texts over the seconds of all "
        "rounds. Right: the median over prompts of a text's tokens/s over those of plain decoding of the same prompt "
        f"in as large a batch, with its 95 % interval where 5 or more ran; points at one size are moved apart.{dotted}",
        figure,
    )


def _against_all(name: str, units: pd.DataFrame, configurations: Sequence[str]) -> Plot:
    """What a text has, and what all have."""
    figure, (axis,) = blank(f"What a text has, and what all have, {name}", WIDTH * 0.75, 4.2, 1, 1)
    for place, configuration in enumerate(configurations):
        part = units[(units["configuration"] == configuration) & units["tpot"].notna()]
        axis.plot(1e3 / part["tpot"], part["throughput"], label=title_of(configuration), **style(place))
    known = units[units["configuration"].isin(configurations) & units["tpot"].notna()]
    label_points(axis, [(1e3 / row["tpot"], row["throughput"], str(row["batch"])) for _, row in known.iterrows()])
    axis.set_xlabel("tokens/s of a text, median", fontsize=9)
    axis.set_ylabel("tokens/s of all texts", fontsize=9)
    legend_below(figure)
    return Plot(
        f"pareto_{slug(name)}",
        f"A text's tokens/s against those of all texts, {name}; the numbers are texts at a time. Up and to the "
        "right is better.",
        figure,
    )
