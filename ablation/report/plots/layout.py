"""Where the parts of a figure stand: text is measured, so that none is cut, and all is laid out once."""

import warnings
from collections.abc import Sequence
from functools import lru_cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

_POINTS = 72
# Inches between two lines of a title, and those that a legend's entry has beside its words.
_LINE, _HANDLE = 0.16, 0.65
_MOST_COLUMNS = 3
# Where a label may stand beside its point: its own half widths sideways, and points upwards. The first free one is
# taken.
_BESIDE = ((1, 6), (-1, 6), (1, -6), (-1, -6), (0, 9), (0, -10), (1, 0), (-1, 0), (2, 12), (-2, -12), (2, -12))


def lay_out(figure: Figure) -> None:
    """Place all parts, with titles and labels on as many lines as they need.

    By hand: a figure that has a layout engine is laid out for each file. The margin is for letters that are wider at
    the resolution of a file.
    """
    engine = ConstrainedLayoutEngine(w_pad=0.1)
    engine.execute(figure)
    if _wrap_all(figure):
        engine.execute(figure)


def text_width(text: str, size: float) -> float:
    """Inches that a line takes in the font of all plots. Letters that the font lacks count as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        return _measured(text, size)


@lru_cache(maxsize=4096)
def _measured(text: str, size: float) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / _POINTS


def fitted(text: str, inches: float, size: float) -> str:
    """Text on lines of at most so many inches. A word that is longer than a line is broken.

    Nothing is broken at a space that does not break, as in the number of prompts.
    """
    lines = [""]
    for word in filter(None, text.replace("\n", " ").split(" ")):
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= inches:
            lines[-1] = longer
            continue
        lines.append("")
        for letter in word:
            if lines[-1] and text_width(lines[-1] + letter, size) > inches:
                lines.append("")
            lines[-1] += letter
    return "\n".join(line for line in lines if line)


def legend_below(figure: Figure) -> None:
    """A legend under all axes, in as many columns as the figure has room for; the figure grows by its rows."""
    handles, labels = [], []
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    room = figure.get_figwidth() - 0.4
    labels = [fitted(label, room - _HANDLE, 8) for label in labels]
    widest = max(text_width(line, 8) for label in labels for line in label.split("\n")) + _HANDLE
    columns = max(1, min(_MOST_COLUMNS, len(labels), int(room / widest)))
    rows = -(-len(labels) // columns)
    lines = sum(max(label.count("\n") + 1 for label in labels[row::rows]) for row in range(rows))
    figure.set_figheight(figure.get_figheight() + _LINE * max(0, lines - 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def _wrap_all(figure: Figure) -> bool:
    """Whether any title or label was longer than its side; the figure grows by the lines of its axes' titles."""
    moved, height = False, figure.get_figheight()
    for axis in figure.axes:
        if not axis.get_visible():
            continue
        place = axis.get_position()
        width, tall = place.width * figure.get_figwidth(), place.height * height
        lines = _wrap(axis.title, width)
        moved |= bool(lines) | bool(_wrap(axis.xaxis.label, width)) | bool(_wrap(axis.yaxis.label, tall))
        grown = height + _LINE * lines * _rows(axis)
        figure.set_figheight(max(figure.get_figheight(), grown))
    return moved


def _wrap(text: Text, inches: float) -> int:
    """How many lines a text has more than before."""
    before, size = text.get_text(), float(text.get_fontsize())
    if not before or max(text_width(line, size) for line in before.split("\n")) <= inches:
        return 0
    text.set_text(fitted(before, inches, size))
    return text.get_text().count("\n") - before.count("\n")


def _rows(axis: Axes) -> int:
    grid = axis.get_gridspec()
    return 1 if grid is None else grid.nrows


def label_points(axis: Axes, labels: Sequence[tuple[float, float, str]], size: float = 7.0) -> None:
    """Write words beside points, each where it meets no other point and no other words, if there is such a place."""
    figure = axis.get_figure()
    assert figure is not None
    low, high = zip(axis.get_xlim(), axis.get_ylim(), strict=True)
    side = _POINTS * axis.get_window_extent().width / figure.dpi, _POINTS * axis.get_window_extent().height / figure.dpi
    places = [
        (side[0] * (x - low[0]) / (high[0] - low[0]), side[1] * (y - low[1]) / (high[1] - low[1])) for x, y, _ in labels
    ]
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in places]
    for (x, y), (point_x, point_y, words) in zip(places, labels, strict=True):
        wide, tall = _POINTS * text_width(words, size) / 2 + 1, size / 2
        offsets = [(a * (wide + 4), b) for a, b in _BESIDE]
        boxes = [(x + a - wide, y + b - tall, x + a + wide, y + b + tall) for a, b in offsets]
        best = min(range(len(boxes)), key=lambda place: (sum(_meet(boxes[place], other) for other in taken), place))
        taken.append(boxes[best])
        axis.annotate(
            words, (point_x, point_y), xytext=offsets[best], textcoords="offset points", fontsize=size, ha="center",
            va="center",
        )  # fmt: skip


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
