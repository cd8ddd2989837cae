"""Plots of speed: by configuration and task, and against gamma."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablation.plan.grid import CONTROL
from ablation.report.figure import COLOURS, GREY, blank, label_height, name_labels, prompts_in, style
from ablation.report.summary import ALL
from ablation.results.table import setting_columns
from sampling.methods import REFERENCE

_LENGTHS = ("gamma", "egag_gamma_max")
_PANELS_A_ROW = 5


def speedup_figure(summary: pd.DataFrame, processor: str) -> Figure | str:
    """A panel a task, a line a configuration; or why there is none."""
    rows = summary[(summary["configuration"] != REFERENCE) & summary["speedup"].notna()]
    if rows.empty:
        return "No speedup over AR is known."
    tasks = list(dict.fromkeys(rows["task"]))
    tasks = tasks if len(tasks) > 2 else [ALL]
    names = list(dict.fromkeys(rows["configuration"]))[::-1]
    columns = min(_PANELS_A_ROW, len(tasks))
    lines = -(-len(tasks) // columns)
    labels = name_labels(["AR again (noise)" if name == CONTROL else name for name in names])
    line = label_height(labels)
    size = 2.4 + 2.0 * max(columns, 2), 0.8 + lines * (0.75 + line * len(names))
    title = f"Speedup over AR under {processor}: median over prompts, 95 % interval"
    figure, axes = blank(title, *size, lines, columns, sharex=True, sharey=True)
    methods = [method for method in dict.fromkeys(rows["method"]) if method != REFERENCE]
    colours = {REFERENCE: GREY, **{method: COLOURS[place % len(COLOURS)] for place, method in enumerate(methods)}}
    for axis, task in zip(axes, tasks, strict=False):
        part = rows[rows["task"] == task]
        _points(axis, part, names, colours)
        axis.set_title(f"{task} ({prompts_in(part['prompts'])})", fontsize=9)
    for place, axis in enumerate(axes):
        axis.set_visible(place < len(tasks))
        if place % columns:
            # One object in place of a tick, a label and a grid line a configuration, which take seconds to draw.
            axis.yaxis.set_visible(False)
            axis.hlines(
                range(len(names)), 0, 1, transform=axis.get_yaxis_transform(), color="#b0b0b0", alpha=0.3, lw=0.6
            )
    axes[0].set_yticks(range(len(names)), labels)
    axes[0].set_ylim(-0.6, len(names) - 0.4)
    figure.supxlabel("speedup = tokens/s over tokens/s of AR on the same prompt (line: AR = 1.0)", fontsize=9)
    return figure


@dataclass(frozen=True, slots=True)
class Family:
    """Configurations of which only the draft length differs: `rows` of the summary with `draft_length`, ascending."""

    label: str
    rows: pd.DataFrame


def gamma_figure(frame: pd.DataFrame, summary: pd.DataFrame, processor: str) -> Figure | str:
    """Speedup and acceptance rate against the draft length; or why there is none."""
    families = list(_families(frame, summary[summary["task"] == ALL]))
    if not families:
        return "No two configurations differ in gamma alone."
    title = f"Speedup over AR and acceptance rate against gamma under {processor}, all tasks"
    count = prompts_in(int(n) for family in families for n in family.rows["prompts"])
    figure, (speed, rate) = blank(f"{title} ({count} prompts)", 8.6, 4.6, 1, 2)
    for place, family in enumerate(families):
        rows, look = family.rows, style(place)
        x = rows["draft_length"].to_numpy()
        # Side by side, or the intervals of families would hide each other.
        beside = x + 0.12 * (place - (len(families) - 1) / 2)
        middle = rows["speedup"]
        errors = [(middle - rows["speedup_low"]).fillna(0.0), (rows["speedup_high"] - middle).fillna(0.0)]
        speed.errorbar(beside, middle, yerr=errors, capsize=2, label=family.label, **look)
        rate.plot(x, rows["acceptance_rate"], **look)
    speed.axhline(1.0, color="black", linewidth=1.0)
    speed.set_ylabel("speedup over AR (median, 95 % interval)", fontsize=9)
    rate.set_ylabel("acceptance rate = accepted / drafted", fontsize=9)
    rate.set_ylim(0.0, 1.0)
    for axis in (speed, rate):
        axis.set_xticks(sorted({x for family in families for x in family.rows["draft_length"]}))
        axis.set_xlabel("gamma in tokens (EGAG: gamma_max)", fontsize=9)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def _points(axis: Axes, rows: pd.DataFrame, names: list[str], colours: dict[str, str]) -> None:
    for method, part in rows.groupby("method"):
        places, middle = [names.index(name) for name in part["configuration"]], part["speedup"]
        errors = [(middle - part["speedup_low"]).fillna(0.0), (part["speedup_high"] - middle).fillna(0.0)]
        axis.errorbar(middle, places, xerr=errors, fmt="o", color=colours[str(method)], markersize=3.5, linewidth=1.8)
    axis.axvline(1.0, color="black", linewidth=1.0)


def _families(frame: pd.DataFrame, rows: pd.DataFrame) -> Iterator[Family]:
    """Example: speculative gamma=2, gamma=4 and gamma=8 are one; egag_gamma_max 4 and 8 under egag_ema=0 another."""
    columns = [name for name in setting_columns() if name in frame and name not in ("length", "processor", "seed")]
    settings = frame.drop_duplicates("configuration").set_index("configuration")[columns].astype(object)
    rows = rows.join(settings, on="configuration")
    for length in _LENGTHS:
        if length not in columns:
            continue
        others = [name for name in columns if name != length]
        known = rows[rows[length].notna()].fillna(dict.fromkeys(others, ""))
        known = known.assign(draft_length=known[length].astype(int))
        for _, part in known.groupby(["method", *others], sort=False):
            part = part.drop_duplicates("draft_length").sort_values("draft_length")
            if len(part) > 1:
                yield Family(_label(part.iloc[0], known[known["method"] == part["method"].iloc[0]], others), part)


def _label(row: pd.Series, of_method: pd.DataFrame, others: list[str]) -> str:
    """The method, with those settings in which its families differ."""
    told = [f"{name}={row[name]}" for name in others if of_method[name].nunique() > 1]
    return f"{row['method']} {', '.join(told)}".strip()
