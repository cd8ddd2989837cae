"""The matrix as one heat map: a row a method and format, a column a load and kind of text, a panel a processor."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ablation.plan.grid import CONTROL, BatchLoad
from ablation.report.matrix.cells import MARKS, Mark, Matrix, MatrixCell
from ablation.report.plots.figure import NAME_WIDTH, WIDTH, Plot, blank, wrapped
from ablation.report.plots.heat import SHADES
from ablation.report.plots.layout import text_width
from ablation.report.tables.cells import title_of
from engines.spec import OURS

_SIGNS: dict[Mark, str] = {"pays": "✓", "keeps pace": "=", "slower": "▼", "open": "?", "too few": "…", "LOSSY": "✗"}
_COLOURED = ("pays", "keeps pace", "slower")
_COLUMNS = 12
_LEAST_RANGE = np.log2(1.25)
# Inches: a line of text in a row of cells, what a row has besides, the names, and what is around a panel.
_LINE, _ROW, _NAMES, _AROUND = 0.13, 0.09, 2.1, 0.55


class _Line(NamedTuple):
    """A row of a panel: a configuration, under the heading of an engine and a format."""

    heading: str
    configuration: str


class _Column(NamedTuple):
    """A column of a panel: a kind of text at a load."""

    load: str
    task: str


def matrix_plot(matrix: Matrix) -> Plot:
    """The picture. Colour only where something is shown; a sign says what, so that no colour has to be told apart."""
    known = [abs(np.log2(cell.speedup)) for cell in matrix.cells if cell.mark in _COLOURED]
    most = float(max([_LEAST_RANGE, *known]))
    panels = [panel for cells in _by_processor(matrix) for panel in _panels(cells)]
    heights = [_height(cells, columns) for cells, columns in panels]
    figure, axes = blank("Median speedup over plain decoding of the same setting", WIDTH, sum(heights), len(panels), 1,
                         height_ratios=heights)  # fmt: skip
    for axis, (cells, columns) in zip(axes, panels, strict=True):
        _draw(axis, cells, columns, most)
    signs = {mark: sign for mark, sign in _SIGNS.items() if any(cell.mark == mark for cell in matrix.cells)}
    figure.supxlabel("   ".join(f"{sign} {mark}" for mark, sign in signs.items()), fontsize=9)
    told = "; ".join(f"{sign} {mark}: {MARKS[mark]}" for mark, sign in signs.items())
    return Plot(
        "matrix",
        "Median speedup over prompts of each method, against plain decoding in the same format, under the same "
        f"processor, with as many texts at a time, on the same kind of text. {told}. Blue is faster and orange slower, "
        "the more the further from 1; white: nothing is shown.",
        figure,
    )


def _by_processor(matrix: Matrix) -> list[list[MatrixCell]]:
    names = dict.fromkeys(cell.processor for cell in matrix.cells)
    return [[cell for cell in matrix.cells if cell.processor == name] for name in names]


def _panels(cells: list[MatrixCell]) -> list[tuple[list[MatrixCell], list[_Column]]]:
    """One, or as many as the columns need; loads stay whole where they fit."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    loads = list(dict.fromkeys(map(_load, cells)))
    together = max(1, _COLUMNS // len(tasks))
    columns = [
        [_Column(load, task) for load in loads[place : place + together] for task in tasks]
        for place in range(0, len(loads), together)
    ]
    return [(cells, part[at : at + _COLUMNS]) for part in columns for at in range(0, len(part), _COLUMNS)]


def _load(cell: MatrixCell) -> str:
    return BatchLoad(cell.batch, cell.rate or None).text


def _heading(cell: MatrixCell) -> str:
    return ("" if cell.engine == OURS else f"{cell.engine}, ") + f"{cell.target_weights} weights"


def _lines(cells: Sequence[MatrixCell]) -> list[_Line]:
    """From above, each format's configurations together."""
    lines = dict.fromkeys(_Line(_heading(cell), cell.configuration) for cell in cells)
    order = list(dict.fromkeys(line.heading for line in lines))
    return sorted(lines, key=lambda line: order.index(line.heading))


def _labels(lines: Sequence[_Line]) -> list[str]:
    titles = ("AR again (noise)" if name == CONTROL else title_of(name) for _, name in lines)
    return [wrapped(title, NAME_WIDTH) for title in titles]


def _row_heights(lines: Sequence[_Line]) -> list[float]:
    """Inches of each row; the first one of a format has its heading above it."""
    return [
        _ROW + _LINE * (1 + label.count("\n")) + (2 * _LINE if _first(lines, place) else 0.0)
        for place, label in enumerate(_labels(lines))
    ]


def _first(lines: Sequence[_Line], place: int) -> bool:
    return not place or lines[place - 1].heading != lines[place].heading


def _room(columns: Sequence[_Column]) -> float:
    return (WIDTH - _NAMES) / len(columns)


def _turned(columns: Sequence[_Column]) -> bool:
    return max(text_width(column.task, 7) for column in columns) > 0.95 * _room(columns)


def _height(cells: Sequence[MatrixCell], columns: Sequence[_Column]) -> float:
    heads = max(text_width(column.task, 7) for column in columns) if _turned(columns) else _LINE
    return _AROUND + heads + sum(_row_heights(_lines(cells)))


def _draw(axis: Axes, cells: Sequence[MatrixCell], columns: Sequence[_Column], most: float) -> None:
    """A panel: y is inches from above."""
    lines = _lines(cells)
    heights = _row_heights(lines)
    bottoms = np.cumsum(heights)
    middles = []
    for place, line in enumerate(lines):
        height = heights[place] - (2 * _LINE if _first(lines, place) else 0.0)
        middles.append(bottoms[place] - height / 2)
        if _first(lines, place):
            axis.text(0.0, bottoms[place] - height - 0.05, line.heading, fontsize=8, weight="bold", va="bottom")
        for column, asked in enumerate(columns):
            found = [cell for cell in cells if (_heading(cell), cell.configuration) == line]
            found = [cell for cell in found if (_load(cell), cell.task) == asked]
            _draw_cell(axis, found[0] if found else None, column, bottoms[place], height, most)
    axis.set_xlim(0, len(columns))
    axis.set_ylim(bottoms[-1], 0)
    axis.set_yticks(middles, _labels(lines), fontsize=7)
    _name_columns(axis, columns, cells[0].processor)


def _draw_cell(axis: Axes, cell: MatrixCell | None, column: int, bottom: float, height: float, most: float) -> None:
    if cell is None:
        axis.text(column + 0.5, bottom - height / 2, "–", ha="center", va="center", fontsize=7)
        return
    share = np.log2(cell.speedup) / most if cell.mark in _COLOURED else 0.0
    hatch = "////" if cell.mark == "LOSSY" else None
    face = SHADES(0.5 + share / 2)
    axis.add_patch(
        Rectangle((column, bottom - height), 1, height, facecolor=face, edgecolor="#BBBBBB", hatch=hatch, linewidth=0.4)
    )
    told = f"{cell.speedup:.2f}" if cell.speedup < 10 else f"{cell.speedup:.1f}"
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5} if hatch else None
    axis.text(
        column + 0.5, bottom - height / 2, f"{told} {_SIGNS.get(cell.mark, '')}".strip(), ha="center", va="center",
        fontsize=7, weight="bold" if cell.mark == "pays" else "normal", color="white" if share > 0.7 else "black",
        bbox=behind,
    )  # fmt: skip


def _name_columns(axis: Axes, columns: Sequence[_Column], processor: str) -> None:
    """Kinds of text above their columns, and above those the processor and the load."""
    axis.xaxis.tick_top()
    turned = _turned(columns)
    places = [place + 0.5 for place in range(len(columns))]
    axis.set_xticks(places, [column.task for column in columns], fontsize=7, rotation=90 if turned else 0, va="bottom")
    loads = [(load, len(list(some))) for load, some in groupby(column.load for column in columns)]
    axis.set_title(f"{processor}: " + " | ".join(load for load, _ in loads), fontsize=9, loc="left")
    for place in np.cumsum([count for _, count in loads])[:-1]:
        axis.axvline(place, color="black", linewidth=1.0)
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
