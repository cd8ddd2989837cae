"""What all plots share: colours that colour-blind readers can tell apart, readable text, and how they are saved."""

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablation.report.plots.layout import fitted, lay_out
from utils.numbers.intervals import FEWEST

# Okabe and Ito's palette, the yellow that vanishes on white left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"
NAME_WIDTH, WIDE_NAMES = 32, 40
# Inches: as wide as the text of a page, so that letters stay readable when a figure is set that wide.
WIDTH = 8.0
_TITLE = 11
# A name is not a formula, whatever dollar signs it holds.
matplotlib.rcParams["text.parse_math"] = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawn plot. `stem` names its files, `caption` says what it shows."""

    stem: str
    caption: str
    figure: Figure

    def save(self, folder: Path) -> None:
        """Write the PNG, the SVG and a PDF whose text is text.

        Letters that the font lacks are drawn as boxes, without a word.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            self._save(folder)

    def _save(self, folder: Path) -> None:
        self.save_svg(folder)
        self.figure.savefig(folder / f"{self.stem}.png", dpi=120)
        # Type 42: what publishers ask for, and a text that can be searched.
        with matplotlib.rc_context({"pdf.fonttype": 42}):
            self.figure.savefig(folder / f"{self.stem}.pdf", metadata={"CreationDate": None})

    def save_svg(self, folder: Path) -> None:
        """Write the SVG alone."""
        lay_out(self.figure)
        # No date: the same results give the same file.
        self.figure.savefig(folder / f"{self.stem}.svg", metadata={"Date": None})


def blank(title: str, width: float, height: float, rows: int, columns: int, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A titled figure of `width` by `height` inches with `rows * columns` axes, row by row.

    A long title takes more lines, and the figure grows by them.
    """
    title = fitted(title, 0.96 * width, _TITLE)
    figure = Figure(figsize=(width, height + 0.18 * title.count("\n")))
    figure.suptitle(title, fontsize=_TITLE, x=0.01, ha="left")
    axes = [axis for row in figure.subplots(rows, columns, squeeze=False, **shared) for axis in row]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.tick_params(labelsize=8)
    return figure, axes


def style(place: int) -> dict[str, Any]:
    """Colour, marker and line of the n-th curve; 49 differ."""
    colour, turn = place % len(COLOURS), place // len(COLOURS)
    lines = ("-", "--", ":", "-.")
    marker = MARKERS[(colour + turn) % len(MARKERS)]
    return {"color": COLOURS[colour], "marker": marker, "linestyle": lines[turn % len(lines)], "markersize": 4.5}


def name_labels(names: Sequence[str]) -> list[str]:
    """Names beside an axis, on longer lines where one of them would take more than two."""
    width = NAME_WIDTH if max(map(len, names)) <= 2 * NAME_WIDTH else WIDE_NAMES
    return [wrapped(name, width) for name in names]


def row_places(heights: Sequence[float]) -> list[float]:
    """Where the middle of each row is, in inches from below. Example: 1, 2 -> 0.5, 2."""
    return [sum(heights[:place]) + height / 2 for place, height in enumerate(heights)]


def whiskers(middle: Any, low: Any, high: Any) -> Any:
    """Lengths of the error bars below and above, `[2, n]`; none where the interval is unknown."""
    return np.nan_to_num(np.maximum(0.0, np.array([middle - low, high - middle])))


def label_height(labels: Sequence[str]) -> float:
    """Inches that a row needs so that no label meets the next."""
    return 0.16 + 0.14 * max(label.count("\n") + 1 for label in labels)


def wrapped(name: str, width: int) -> str:
    """A name on lines that fit beside or above an axis."""
    return fill(name, width, break_long_words=True)


def slug(name: str) -> str:
    """A name as part of a file name on every system."""
    return re.sub(r"[^\w=.,-]+", "_", name).strip("_.") or "_"


def prompts_in(counts: Iterable[int]) -> str:
    """How many prompts stand behind points, on one line. Example: 4, 5 -> "n = 4 to 5"."""
    known = sorted(map(int, counts))
    told = f"n = {known[0]}" if known[0] == known[-1] else f"n = {known[0]} to {known[-1]}"
    return told.replace(" ", "\u00a0")


def prompts_and_intervals(counts: Iterable[int]) -> str:
    """How many prompts stand behind points, and which have an interval. Example: 3 -> "n = 3 prompts, too few ..."."""
    known = list(counts)
    if max(known) < FEWEST:
        return f"{prompts_in(known)} prompts, too few for intervals"
    several = f" of {FEWEST} prompts or more" if min(known) < FEWEST else ""
    return f"{prompts_in(known)} prompts; lines: 95 % intervals{several}"
