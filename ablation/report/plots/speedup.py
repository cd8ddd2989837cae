"""Plots of speed: by configuration and task, and against gamma."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablation.report.plots.figure import WIDTH, blank, prompts_and_intervals, prompts_in, style, whiskers
from ablation.report.plots.heat import heat_figure
from ablation.report.plots.layout import label_points, legend_below
from ablation.report.plots.medians import MedianRows, beyond, draw_medians, limits
from ablation.report.tables.summary import ALL
from ablation.results.table import setting_columns
from sampling.methods.tables import AR
from utils.numbers.intervals import FEWEST, share_interval

# Settings of the draft length, and whether a rule chooses below it.
_LENGTHS = {"gamma": False, "egag_gamma_max": True, "ucb_gamma_max": True}
_PANELS_A_ROW = 5
MOST_TASKS = 6
"""Tasks that have a panel each."""
# So many medians of tasks are read off lines; more are read as figures.
_MOST_POINTS = 100
# Points of families that share a gamma stand so far apart, in tokens.
_BESIDE = 0.08


def crowded(summary: pd.DataFrame) -> bool:
    """Whether panels of all tasks would be too many or too full to read: then a heat table takes their place."""
    rows = _compared(summary)
    tasks = rows.loc[rows["task"] != ALL, "task"].nunique()
    return tasks > MOST_TASKS or (tasks > 1 and tasks * rows["configuration"].nunique() > _MOST_POINTS)


def speedup_figure(summary: pd.DataFrame, processor: str) -> Figure | str:
    """A panel a task, a line a configuration, or a heat table of many tasks; or why there is none."""
    rows = _compared(summary)
    if rows.empty:
        return "No speedup over AR is known."
    tasks = list(dict.fromkeys(rows["task"]))
    tasks = tasks if len(tasks) > 2 else [ALL]
    if crowded(summary):
        return heat_figure(rows, [task for task in tasks if task != ALL], processor)
    rows = rows[rows["task"].isin(tasks)]
    lines = -(-len(tasks) // _PANELS_A_ROW)
    columns = -(-len(tasks) // lines)
    medians = MedianRows.of(rows)
    ends = limits(rows)
    title = f"Median speedup over AR under {processor} (lines: 95 % interval of {FEWEST} prompts or more)"
    height = 0.8 + lines * (0.75 + medians.height)
    figure, axes = blank(title, WIDTH, height, lines, columns, sharex=True, sharey=True)
    for axis, task in zip(axes, tasks, strict=False):
        part = rows[rows["task"] == task]
        draw_medians(axis, part, medians, ends)
        axis.set_title(f"{task} ({prompts_in(part['prompts'])})", fontsize=9)
    for place, axis in enumerate(axes):
        axis.set_visible(place < len(tasks))
        # A panel that has none below it names the axis itself.
        axis.tick_params(axis="x", labelbottom=place + columns >= len(tasks))
        if place % columns:
            # One object in place of a tick, a label and a grid line a configuration, which take seconds to draw.
            axis.yaxis.set_visible(False)
            places = list(medians.places.values())
            axis.hlines(places, 0, 1, transform=axis.get_yaxis_transform(), color="#b0b0b0", alpha=0.3, lw=0.6)
    medians.label(axes[0])
    label = "median speedup: tokens/s over tokens/s of AR on the same prompt (line: AR = 1.0)"
    figure.supxlabel(label + beyond(rows, ends), fontsize=9)
    return figure


def _compared(summary: pd.DataFrame) -> pd.DataFrame:
    return summary[(summary["configuration"] != AR) & summary["speedup"].notna()]


@dataclass(frozen=True, slots=True)
class MethodFamily:
    """Configurations of which only the draft length differs: `rows` of the summary with `draft_length`, ascending.

    adaptive: that length is the most that a rule may ask for.
    """

    label: str
    rows: pd.DataFrame
    adaptive: bool


def gamma_figure(frame: pd.DataFrame, summary: pd.DataFrame, processor: str) -> Figure | str:
    """Speedup and acceptance rate against the mean gamma; or why there is none.

    A rule's limit (gamma_max) stands beside its points: what it asks for is less.
    """
    families = list(_families(frame, summary[summary["task"] == ALL]))
    if not families:
        return "No two configurations differ in gamma alone."
    title = f"Median speedup over AR and acceptance rate against gamma under {processor}, all tasks"
    count = prompts_and_intervals(int(n) for family in families for n in family.rows["prompts"])
    figure, (speed, rate) = blank(f"{title} ({count})", WIDTH, 4.4, 1, 2)
    limits_of_rules = list[tuple[float, float, str]]()
    for place, family in enumerate(families):
        rows, look = family.rows, style(place)
        # Side by side, or the intervals of families would hide each other.
        beside = rows["mean_gamma"] + _BESIDE * (place - (len(families) - 1) / 2)
        errors = whiskers(rows["speedup"], rows["speedup_low"], rows["speedup_high"])
        speed.errorbar(beside, rows["speedup"], yerr=errors, capsize=2, label=family.label, **look)
        low, high = np.array([_acceptance(frame, name) for name in rows["configuration"]]).T
        errors = whiskers(rows["acceptance_rate"], low, high)
        rate.errorbar(beside, rows["acceptance_rate"], yerr=errors, capsize=2, **look)
        if family.adaptive:
            names = (f"max {most}" for most in rows["draft_length"])
            limits_of_rules += zip(beside, rows["speedup"], names, strict=True)
    label_points(speed, limits_of_rules)
    speed.axhline(1.0, color="black", linewidth=1.0)
    speed.set_ylabel("median speedup over AR on the same prompt", fontsize=9)
    rate.set_ylabel("acceptance rate = accepted / drafted", fontsize=9)
    rate.set_ylim(-0.03, 1.03)
    for axis in (speed, rate):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.set_xlabel("mean gamma, tokens asked for a round", fontsize=9)
    legend_below(figure)
    return figure


def _acceptance(frame: pd.DataFrame, configuration: str) -> tuple[float, float]:
    """The 95 % interval of the acceptance rate, over prompts."""
    rows = frame[(frame["configuration"] == configuration) & ~frame["failed"]]
    sums = rows.groupby("id", observed=True)[["accepted", "drafted"]].sum().to_numpy(float)
    low, high = share_interval(sums[:, :1], sums[:, 1:])
    return float(low[0]), float(high[0])


def _families(frame: pd.DataFrame, rows: pd.DataFrame) -> Iterator[MethodFamily]:
    """Example: speculative gamma=2, gamma=4 and gamma=8 are one; egag_gamma_max 4 and 8 under egag_ema=0 another."""
    columns = [name for name in setting_columns() if name in frame and name not in ("length", "processor", "seed")]
    settings = frame.drop_duplicates("configuration").set_index("configuration")[columns].astype(object)
    rows = rows.join(settings, on="configuration")
    for length, adaptive in _LENGTHS.items():
        if length not in columns:
            continue
        others = [name for name in columns if name != length]
        known = rows[rows[length].notna() & rows["speedup"].notna()].fillna(dict.fromkeys(others, ""))
        known = known.assign(draft_length=known[length].astype(int))
        known["mean_gamma"] = known["mean_gamma"].fillna(known["draft_length"])
        for _, part in known.groupby(["method", *others], sort=False):
            part = part.drop_duplicates("draft_length").sort_values("mean_gamma")
            if len(part) > 1:
                yield MethodFamily(_label(part, length), part, adaptive)


def _label(part: pd.DataFrame, length: str) -> str:
    """The configurations' names without the draft length; the first one's where they do not agree on the rest."""
    names = {re.sub(rf"\b{length}=\d+(, )?", "", name).rstrip(", ") for name in part["configuration"]}
    return names.pop() if len(names) == 1 else f"{part['configuration'].iloc[0]} and others"
