"""Speedups of many tasks: medians over all tasks with their intervals, and beside them a heat table by task."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ablation.report.plots.figure import WIDTH, blank, prompts_in
from ablation.report.plots.layout import text_width
from ablation.report.plots.medians import MedianRows, beyond, draw_medians, limits
from ablation.report.tables.summary import ALL

# Slower never gets as dark as faster, so that grey tells them apart as well.
SHADES = LinearSegmentedColormap.from_list("speedups", ["#E69F00", "white", "#0072B2"])
_LEAST_RANGE = math.log2(1.25)
_TASKS_A_ROW = 12
# Inches: the names, the medians of all tasks with what is around them, and the letters of a cell.
_NAMES, _MEDIANS = 2.6, 1.4
_CELL = 7.0
_ACROSS = 0.3


def heat_figure(rows: pd.DataFrame, tasks: list[str], processor: str) -> Figure:
    """Left the medians over all tasks with their intervals, right each task's median in figures."""
    lines = MedianRows.of(rows)
    parts = -(-len(tasks) // _TASKS_A_ROW)
    wide = -(-len(tasks) // parts)
    title = f"Median speedup over AR under {processor}, all tasks (lines: 95 % intervals) and each task"
    heads = max(_head(rows, task, _room(wide))[1] for task in tasks)
    height = 0.9 + parts * (0.5 + heads + lines.height)
    ratios = (_MEDIANS, WIDTH - _NAMES - _MEDIANS)
    figure, axes = blank(title, WIDTH, height, parts, 2, sharey=True, width_ratios=ratios)
    whole = rows[rows["task"] == ALL]
    ends = limits(whole)
    for place, (left, right) in enumerate(zip(axes[::2], axes[1::2], strict=True)):
        draw_medians(left, whole, lines, ends)
        left.set_title(f"all ({prompts_in(whole['prompts'])})", fontsize=9)
        left.set_xlabel("median speedup", fontsize=8)
        lines.label(left)
        _cells(right, rows, tasks[place * wide : (place + 1) * wide], lines, wide)
    figure.supxlabel(
        "figures: median speedup = tokens/s over tokens/s of AR on the same prompt; blue: faster, orange: slower"
        + beyond(whole, ends),
        fontsize=8,
    )
    return figure


def _room(wide: int) -> float:
    """Inches of a column."""
    return (WIDTH - _NAMES - _MEDIANS - 0.3) / wide


def _head(rows: pd.DataFrame, task: str, room: float) -> tuple[str, float]:
    """A column's head, and how high it is: turned where it does not fit across on two lines."""
    count = f"({prompts_in(rows.loc[rows['task'] == task, 'prompts'])})"
    if max(text_width(task, 8), text_width(count, 8)) <= 0.95 * room:
        return f"{task}\n{count}", _ACROSS
    return f"{task} {count}", text_width(f"{task} {count}", 8)


def _cells(axis: Axes, rows: pd.DataFrame, tasks: list[str], lines: MedianRows, wide: int) -> None:
    """A cell a configuration and task with its median; a dash where there is none."""
    by_task = rows[rows["task"].isin(tasks)].pivot(index="configuration", columns="task", values="speedup")
    medians = by_task.reindex(index=list(lines.places), columns=tasks).to_numpy(dtype=float)
    known = rows.loc[rows["speedup"] > 0, "speedup"]
    most = max(_LEAST_RANGE, float(np.abs(np.log2(known)).max()))
    shades = np.ma.masked_invalid(np.log2(medians))
    edges = [0.0, *np.cumsum(lines.heights)]
    axis.pcolormesh(
        range(len(tasks) + 1), edges, shades, cmap=SHADES, vmin=-most, vmax=most, edgecolors="white", linewidth=1.0
    )
    for place, y in enumerate(lines.places.values()):
        for column, value in enumerate(medians[place]):
            told = "–" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:.1f}"
            dark = not math.isnan(value) and math.log2(value) > 0.7 * most
            axis.text(
                column + 0.5, y, told, ha="center", va="center", fontsize=_CELL, color="white" if dark else "black"
            )
    across = all(_head(rows, task, _room(wide))[1] == _ACROSS for task in tasks)
    heads = [_head(rows, task, _room(wide) if across else 0.0)[0] for task in tasks]
    axis.xaxis.tick_top()
    axis.set_xticks([place + 0.5 for place in range(len(tasks))], heads, rotation=0 if across else 90, va="bottom")
    axis.tick_params(length=0)
    axis.set_xlim(0, wide)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    axis.yaxis.set_visible(False)
