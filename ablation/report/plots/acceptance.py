"""Plots of acceptance: by position in the draft, and how many drafts a round kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablation.report.plots.figure import (
    COLOURS,
    GREY,
    WIDTH,
    blank,
    label_height,
    prompts_and_intervals,
    row_places,
    style,
    whiskers,
    wrapped,
)
from ablation.report.tables.acceptance import FEW_ROUNDS, Positions, ShareAtPosition

# Beside one position the marks of all configurations spread over so much of the way to the next.
_SPREAD = 0.5
_LEAST_BAR = 0.006
# With more curves than this in a panel, intervals are faint.
_MANY = 8


def position_figure(shown_positions: list[Positions], processor: str, prompts: int) -> Figure | str:
    """Acceptance by position: a row of two panels a method; or why there is none."""
    shown_positions = [each for each in shown_positions if each.tested.any()]
    if not shown_positions:
        return "No round judged a draft."
    methods = list(dict.fromkeys(each.method for each in shown_positions))
    families = [[each for each in shown_positions if each.method == method] for method in methods]
    heights = [max(1.5, 0.45 + 0.14 * sum(_label(each).count("\n") + 1 for each in family)) for family in families]
    title = (
        f"Acceptance by position in the draft under {processor}, all tasks "
        f"({prompts_and_intervals([prompts])}; hollow: fewer than {FEW_ROUNDS} rounds)"
    )
    figure, axes = blank(
        title, WIDTH, 1.2 + sum(heights), len(methods), 2, sharex="row", sharey=True, height_ratios=heights
    )
    for left, right, family in zip(axes[::2], axes[1::2], families, strict=True):
        faint = 0.35 if len(family) > _MANY else 1.0
        for place, positions_of in enumerate(family):
            beside = _SPREAD * ((place + 0.5) / len(family) - 0.5)
            look = style(place)
            _curve(left, positions_of.unconditional(), beside, look, faint)
            _curve(right, positions_of.conditional(), beside, look | {"label": _label(positions_of)}, faint)
        left.set_title(family[0].method, fontsize=9.5, loc="left", fontweight="bold")
        left.set_ylabel("share of rounds", fontsize=8)
        left.set_xlim(0.5, max(each.tested.shape[1] for each in family) + 0.5)
        left.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=7.5, frameon=False)
    axes[0].set_ylim(-0.03, 1.03)
    axes[0].set_title("accepted / all rounds", fontsize=9, loc="right")
    axes[1].set_title("accepted / judged there", fontsize=9, loc="right")
    for axis in axes[-2:]:
        axis.set_xlabel("position in the draft, from 1", fontsize=9)
    return figure


def histogram_figure(shown_positions: list[Positions], processor: str, prompts: int) -> Figure | str:
    """How many drafts a round accepted: a row of bars a configuration; or why there is none.

    One pair of axes for all: thirty small ones would take seconds to draw.
    """
    if not shown_positions:
        return "No configuration drafted anything."
    shown_positions = shown_positions[::-1]
    labels = [f"{wrapped(each.name, 34)}\n{_mean(each)}" for each in shown_positions]
    heights = [max(0.55, label_height([label])) for label in labels]
    bases = [place - height / 2 for place, height in zip(row_places(heights), heights, strict=True)]
    title = f"Drafts that a round accepted under {processor}, all tasks (n = {prompts} prompts)"
    figure, (axis,) = blank(title, WIDTH, 1.0 + sum(heights), 1, 1)
    methods = list(dict.fromkeys(each.method for each in shown_positions[::-1]))
    scale = 0.36 / max(max(each.shares) for each in shown_positions)
    for base, positions_of in zip(bases, shown_positions, strict=True):
        _bars(axis, positions_of, base, scale, COLOURS[methods.index(positions_of.method) % len(COLOURS)])
        axis.axhline(base, color=GREY, linewidth=0.5)
    axis.set_yticks([base + height / 2 for base, height in zip(bases, heights, strict=True)], labels)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(-0.05, sum(heights))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.grid(visible=False)
    axis.set_xlabel("accepted drafts a round (bars: share of all rounds of the configuration)", fontsize=9)
    return figure


def _label(positions_of: Positions) -> str:
    return wrapped(positions_of.name.removeprefix(positions_of.method).strip() or positions_of.name, 22)


def _mean(positions_of: Positions) -> str:
    """Example: "mean 1.13 [0.90, 1.41], 1,105 rounds"."""
    mean = positions_of.mean()
    interval = "" if np.isnan(mean.low) else f" [{mean.low:.2f}, {mean.high:.2f}]"
    return f"mean {mean.share:.2f}{interval}, {positions_of.rounds:,} rounds"


def _curve(axis: Axes, shares: Sequence[ShareAtPosition], beside: float, look: dict[str, Any], faint: float) -> None:
    """Shares with their intervals, moved aside so that equal curves do not hide each other; of few rounds hollow.

    faint: how much of an interval is seen.
    """
    x = np.array([share.position for share in shares]) + beside
    middle, low, high = (np.array([getattr(share, name) for share in shares]) for name in ("share", "low", "high"))
    axis.plot(x, middle, **look | {"markersize": 3.5, "linewidth": 1.1})
    axis.errorbar(
        x, middle, yerr=whiskers(middle, low, high), fmt="none", ecolor=look["color"], elinewidth=0.8, alpha=faint
    )
    few = np.array([share.rounds < FEW_ROUNDS for share in shares])
    hollow = {"marker": look["marker"], "markersize": 3.5, "markerfacecolor": "white", "linestyle": ""}
    axis.plot(x[few], middle[few], color=look["color"], zorder=3, **hollow)


def _bars(axis: Axes, positions_of: Positions, base: float, scale: float, colour: str) -> None:
    """The shares as bars on the line `base`, with their percentages; the smallest is still seen."""
    known = [(place, share) for place, share in enumerate(positions_of.shares) if share]
    heights = [max(_LEAST_BAR, scale * share) for _, share in known]
    axis.bar([place for place, _ in known], heights, bottom=base, color=colour, width=0.85)
    for (place, share), height in zip(known, heights, strict=True):
        words = f"{share:.0%}" if share >= 0.01 else "<1%"
        axis.text(place, base + height + 0.01, words, ha="center", va="bottom", fontsize=6.5)
