"""Medians with their intervals, a line a configuration: what the plots of speedups share."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ablation.plan.grid import CONTROL
from ablation.report.plots.figure import COLOURS, GREY, label_height, name_labels, row_places, whiskers
from ablation.report.tables.cells import title_of
from sampling.methods.tables import AR

# So many of the points may stand outside: a tenth, and one of a few.
_OUTSIDE = 0.1
# A margin at both ends, as a share of the whole axis.
_MARGIN = 0.06
_LEAST_EXTENT = 0.5
# Beyond: so many times as far from all others as they take of the axis, which is 1 at least.
_FAR = 2.0
BEYOND = "triangle: a median beyond the axis, in figures"


@dataclass(frozen=True, slots=True)
class MedianRows:
    """The lines of a plot from below: where each configuration stands, in inches, and its method's colour."""

    places: Mapping[str, float]
    heights: tuple[float, ...]
    labels: tuple[str, ...]
    colours: Mapping[str, str]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> "MedianRows":
        """From rows of the summary, in their order from above."""
        names = list(dict.fromkeys(rows["configuration"]))[::-1]
        labels = name_labels(["AR again (noise)" if name == CONTROL else title_of(name) for name in names])
        heights = [label_height([label]) for label in labels]
        methods = [method for method in dict.fromkeys(rows["method"]) if method != AR]
        colours = {AR: GREY, **{method: COLOURS[place % len(COLOURS)] for place, method in enumerate(methods)}}
        return cls(
            dict(zip(names, row_places(heights), strict=True)), tuple(heights), tuple(labels), colours
        )  # fmt: skip

    @property
    def height(self) -> float:
        """Inches of all lines."""
        return sum(self.heights)

    def label(self, axis: Axes) -> None:
        """Name the lines beside an axis."""
        axis.set_yticks(list(self.places.values()), list(self.labels))
        axis.set_ylim(-0.08, self.height + 0.08)


def limits(rows: pd.DataFrame) -> tuple[float, float]:
    """The ends of an axis that holds 1, the medians and their intervals, but not a median far beyond all others.

    Far: with it the others would have less than a third of the axis. Example: medians of 1 to 2 and one of 8 -> 1 to 2,
    with a margin.
    """
    known = rows[rows["speedup"].notna()].sort_values("speedup")
    middles = known["speedup"].to_numpy(dtype=float)
    low = min(1.0, float(known["speedup_low"].fillna(known["speedup"]).min()))
    # How far the first ones reach, with their intervals.
    reached = known["speedup_high"].fillna(known["speedup"]).clip(lower=1.0).cummax().to_numpy(dtype=float)
    fewest = max(2, len(known) - max(1, int(_OUTSIDE * len(known))))
    high = next(
        (
            reached[count - 1]
            for count in range(fewest, len(known))
            if middles[count] - reached[count - 1] > _FAR * max(reached[count - 1] - low, 1.0)
        ),
        reached[-1],
    )
    margin = _MARGIN * max(high - low, _LEAST_EXTENT)
    return low - margin, float(high) + margin


def draw_medians(axis: Axes, rows: pd.DataFrame, lines: MedianRows, ends: tuple[float, float]) -> None:
    """A dot a median, a line its interval, AR at 1; what is beyond the axis is a triangle at its border."""
    for method, part in rows.groupby("method"):
        inside = part[part["speedup"] <= ends[1]]
        errors = whiskers(inside["speedup"], inside["speedup_low"], inside["speedup_high"])
        y = [lines.places[name] for name in inside["configuration"]]
        colour = lines.colours[str(method)]
        axis.errorbar(inside["speedup"], y, xerr=errors, fmt="o", color=colour, markersize=3.5, lw=1.8)
        for _, row in part[part["speedup"] > ends[1]].iterrows():
            place = lines.places[row["configuration"]]
            axis.plot(ends[1], place, ">", color=colour, markersize=6, clip_on=False)
            axis.annotate(
                f"{row['speedup']:.2f}", (ends[1], place), xytext=(-6, 0), textcoords="offset points", ha="right",
                va="center", fontsize=7,
            )  # fmt: skip
    axis.axvline(1.0, color="black", linewidth=1.0)
    axis.set_xlim(*ends)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=4))


def beyond(rows: pd.DataFrame, ends: tuple[float, float]) -> str:
    """What a line below an axis' label says of the points that it does not hold."""
    return f"\n{BEYOND}" if (rows["speedup"] > ends[1]).any() else ""
