"""What the book's figures share: the formulas, what was recorded, and how axes look."""

import csv
import json
from collections import defaultdict
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablation.report.plots.figure import COLOURS, MARKERS
from utils.provenance import ROOT

RESULTS = ROOT / "docs" / "results"

CsvRow = dict[str, str]


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens a round where each draft passes with probability alpha."""
    return sum(alpha**i for i in range(gamma + 1))


def forward_ms() -> dict[int, float]:
    """Milliseconds of one target forward by its number of tokens, as they were measured with full weights."""
    recorded = json.loads((RESULTS / "growth.json").read_text(encoding="utf-8"))
    return {int(tokens): float(ms) for tokens, ms in recorded["ms"]["full"].items()}


def growth(points: dict[int, float], tokens: int) -> float:
    """v(n): a forward over n tokens in forwards over one, on straight lines between measured points."""
    known = sorted(points)
    after = next(n for n in known if n >= tokens)
    before = max((n for n in known if n <= tokens), default=after)
    share = 0.0 if after == before else (tokens - before) / (after - before)
    return (points[before] + share * (points[after] - points[before])) / points[1]


def by_configuration(plan: str) -> dict[str, list[CsvRow]]:
    """The recorded rows of a run that ended well."""
    rows: dict[str, list[CsvRow]] = defaultdict(list)
    with (RESULTS / plan / "results.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["error"]:
                rows[row["configuration"]].append(row)
    return rows


def drafter_of(plan: str, name: str) -> tuple[float, float]:
    """alpha (accepted / tested, of all drafts) and c (the median of the answers) in a recorded run."""
    rows = by_configuration(plan)[name]
    accepted, tested = (sum(int(row[key]) for row in rows) for key in ("accepted", "tested"))
    return accepted / tested, median(float(row["c"]) for row in rows)


def axes(width: float, height: float, columns: int = 1, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of `columns` plain axes in a row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    row = list(figure.subplots(1, columns, squeeze=False, sharey=sharey)[0])
    for axis in row:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3, linewidth=0.6)
        axis.set_axisbelow(True)
    return figure, row


def look(place: int) -> dict[str, Any]:
    """Colour and marker of the n-th curve."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "markersize": 4.5}
