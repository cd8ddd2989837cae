"""Plots of acceptance: by position in the draft, and how many drafts a round kept."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablation.report.figure import COLOURS, GREY, blank, label_height, style, summed, wrapped
from ablation.report.load import in_order

# A share of fewer rounds than this says nothing.
LEAST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Positions:
    """Rounds that accepted i drafts (`hist[i]`), and that judged a draft at position i + 1 (`tested_at[i]`)."""

    method: str
    name: str
    hist: list[int]
    tested_at: list[int]

    def accepted_at(self, position: int) -> int:
        """Rounds that accepted the draft at a position, from 1. Example: hist 5 3 2 -> 5 at 1, 2 at 2."""
        return sum(self.hist[position:])

    def mean(self) -> float:
        """Accepted drafts a round."""
        return sum(place * count for place, count in enumerate(self.hist)) / sum(self.hist)

    def unconditional(self) -> list[tuple[int, float]]:
        """(position, share of all rounds that accepted the draft there)."""
        rounds = sum(self.hist)
        return [(i, self.accepted_at(i) / rounds) for i in range(1, len(self.tested_at) + 1) if rounds >= LEAST_ROUNDS]

    def conditional(self) -> list[tuple[int, float]]:
        """(position, share of the rounds that judged a draft there that accepted it)."""
        judged = enumerate(self.tested_at, start=1)
        return [(i, self.accepted_at(i) / tested) for i, tested in judged if tested >= LEAST_ROUNDS]


def positions(frame: pd.DataFrame) -> list[Positions]:
    """One for each configuration that drafted, summed over the runs that did not fail."""
    rows = frame[~frame["failed"] & (frame["drafted"] > 0) & frame["accept_hist"].notna() & frame["tested_at"].notna()]
    found = []
    for name in in_order(rows):
        part = rows[rows["configuration"] == name]
        lists = summed(part["accept_hist"].tolist()), summed(part["tested_at"].tolist())
        found.append(Positions(str(part["method"].iloc[0]), name, *lists))
    return found


def position_figure(found: list[Positions], processor: str, prompts: int) -> Figure | str:
    """Acceptance by position: a column of panels a method; or why there is none."""
    found = [one for one in found if one.conditional()]
    if not found:
        return f"Acceptance by position needs {LEAST_ROUNDS} rounds that judged a draft."
    methods = list(dict.fromkeys(one.method for one in found))
    most = max(sum(one.method == method for one in found) for method in methods)
    title = f"Acceptance by position in the draft under {processor}, all tasks (n = {prompts} prompts)"
    width = max(5.4, 3.4 * len(methods))
    figure, axes = blank(title, width, 5.6 + 0.19 * most, 2, len(methods), sharex="col", sharey=True)
    for column, method in enumerate(methods):
        above, below = axes[column], axes[len(methods) + column]
        for place, one in enumerate(entry for entry in found if entry.method == method):
            label = one.name.removeprefix(method).strip() or one.name
            above.plot(*zip(*one.unconditional(), strict=True), **style(place))
            below.plot(*zip(*one.conditional(), strict=True), label=wrapped(label, 40), **style(place))
        above.set_title(method, fontsize=10)
        below.set_xlabel("position in the draft, from 1", fontsize=9)
        below.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize=7.5, frameon=False)
    axes[0].set_ylim(0.0, 1.03)
    axes[0].set_ylabel("accepted / all rounds", fontsize=9)
    axes[len(methods)].set_ylabel("accepted / judged there", fontsize=9)
    return figure


def histogram_figure(found: list[Positions], processor: str, prompts: int) -> Figure | str:
    """How many drafts a round accepted: a row of bars a configuration; or why there is none.

    One pair of axes for all: thirty small ones would take seconds to draw.
    """
    if not found:
        return "No configuration drafted anything."
    most = max(len(one.hist) for one in found)
    title = f"Drafts that a round accepted under {processor}, all tasks (n = {prompts} prompts)"
    labels = [f"{wrapped(one.name, 38)}\nmean {one.mean():.2f}, {sum(one.hist)} rounds" for one in reversed(found)]
    height = max(0.55, label_height(labels))
    figure, (axis,) = blank(title, min(12.0, 4.2 + 0.5 * most), 1.0 + height * len(found), 1, 1)
    methods = list(dict.fromkeys(one.method for one in found))
    highest = max(max(one.hist) / sum(one.hist) for one in found)
    for base, one in enumerate(reversed(found)):
        _bars(axis, one, base, 0.72 / highest, COLOURS[methods.index(one.method) % len(COLOURS)])
        axis.axhline(base, color=GREY, linewidth=0.5)
    axis.set_yticks([base + 0.3 for base in range(len(found))], labels)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(-0.1, len(found))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.grid(visible=False)
    axis.set_xlabel("accepted drafts a round (bars: share of rounds)", fontsize=9)
    return figure


def _bars(axis: Axes, one: Positions, base: int, scale: float, colour: str) -> None:
    """The shares as bars on the line `base`, with their percentages from 1 % on."""
    shares = [count / sum(one.hist) for count in one.hist]
    axis.bar(range(len(shares)), [scale * share for share in shares], bottom=base, color=colour, width=0.85)
    for place, share in enumerate(shares):
        if share >= 0.01:
            axis.text(place, base + scale * share + 0.02, f"{share:.0%}", ha="center", va="bottom", fontsize=6.5)
