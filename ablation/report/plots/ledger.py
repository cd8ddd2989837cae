"""Plot of the ledger: where the time of a token went, a stacked bar a configuration."""

import pandas as pd
from matplotlib.figure import Figure

from ablation.plan.grid import CONTROL
from ablation.report.plots.figure import COLOURS, GREY, WIDTH, blank, label_height, name_labels, prompts_in, row_places
from ablation.report.tables.cells import title_of
from ablation.report.tables.rates import ledger_of
from ablation.report.tables.summary import ALL
from sampling.measure.ledger import PARTS, Ledger, ms
from sampling.methods.tables import AR

# Dark beside light, so that neighbours differ in grey as well.
_COLOURS = dict(zip(PARTS, (COLOURS[0], "#9ECAE9", "#8C2D04", COLOURS[4], GREY), strict=True))


def ledger_figure(table: pd.DataFrame, processor: str) -> Figure | str:
    """A stacked bar a configuration, AR's first, its time as a line through all; or why there is none."""
    rows = table[(table["task"] == ALL) & (table["configuration"] != CONTROL)]
    ledgers = [
        (title_of(row["configuration"]), row_ledger)
        for _, row in rows.iterrows()
        if (row_ledger := ledger_of(row)) is not None
    ]
    if not any(row["configuration"] != AR and ledger_of(row) for _, row in rows.iterrows()):
        return "No configuration's times are known beside AR's."
    ledgers = ledgers[::-1]  # from below
    labels = name_labels([title for title, _ in ledgers])
    heights = [label_height([label]) for label in labels]
    places = row_places(heights)
    title = f"Where the time of a token went under {processor}, all tasks ({prompts_in(rows['prompts'])} prompts)"
    figure, (axis,) = blank(title, WIDTH, 1.5 + sum(heights), 1, 1)
    for part, colour in _COLOURS.items():
        starts, lengths = zip(*(_piece(ledger, part) for _, ledger in ledgers), strict=True)
        axis.barh(places, lengths, left=starts, height=0.17, color=colour, label=part)
    longest = max(_end(ledger) for _, ledger in ledgers)
    for place, (_, row_ledger) in zip(places, ledgers, strict=True):
        words = f"{ms(row_ledger.total)} ms, {row_ledger.speedup:.2f}"
        axis.text(1.02 * longest, place, words, va="center", fontsize=7)
    axis.axvline(1e3 * ledgers[-1][1].plain, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    axis.set_yticks(places, labels)
    axis.set_ylim(0, sum(heights))
    axis.set_xlim(0, longest * 1.22)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("milliseconds a token (dashed: AR); right: their sum, the ratio of sums", fontsize=9)
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(PARTS), fontsize=8, frameon=False)
    return figure


def _piece(ledger: Ledger, part: str) -> tuple[float, float]:
    """Where a part begins and how long it is, in ms; below 0 it is noise, and has no length."""
    before = list(PARTS)[: list(PARTS).index(part)]
    return 1e3 * sum(max(0.0, getattr(ledger, name)) for name in before), 1e3 * max(0.0, getattr(ledger, part))


def _end(ledger: Ledger) -> float:
    return 1e3 * sum(max(0.0, float(getattr(ledger, part))) for part in PARTS)
