"""The parts of the gap as bars, a bar for each drafter and rule."""

import pandas as pd

from ablation.report.plots.figure import COLOURS, GREY, WIDTH, Plot, blank, label_height, name_labels
from ablation.report.plots.layout import legend_below
from ablation.results.traces.gap.split import PARTS

_TOLD = {
    "later_rounds": ("foresight of later rounds", "#BBBBBB"),
    "irreducible": ("irreducible by any signal of the draft side", GREY),
    "other_signals": ("in signals that the rule does not read", COLOURS[5]),
    "unreached": ("in its own signal, not reached", COLOURS[4]),
    "kept": ("reached and kept", COLOURS[2]),
    "paid_back": ("paid back to the host", COLOURS[1]),
}


def gap_plot(shares: pd.DataFrame) -> Plot:
    """Stacked bars in % of the gap; parts below 0 lie left of it."""
    labels = name_labels([f"{row['drafter']}, {row['rule']}" for _, row in shares.iterrows()])
    height = 1.6 + len(labels) * label_height(labels)
    title = "The time between the best fixed length and the oracle, by who could have spared it"
    figure, (axis,) = blank(title, WIDTH, height, 1, 1)
    places = range(len(labels))
    ends = {sign: [0.0] * len(labels) for sign in (1, -1)}
    for name in PARTS:
        told, colour = _TOLD[name]
        values = shares[name].fillna(0.0).tolist()
        starts = [ends[1 if value >= 0 else -1][place] for place, value in enumerate(values)]
        axis.barh(places, values, left=starts, color=colour, height=0.7, label=told)
        for place, value in enumerate(values):
            ends[1 if value >= 0 else -1][place] += value
    axis.set_yticks(places, labels)
    axis.invert_yaxis()
    axis.axvline(0.0, color="black", linewidth=0.8)
    axis.set_xlabel("% of the gap; parts left of 0 were lost, so that the sum is 100", fontsize=8)
    legend_below(figure)
    return Plot("gap", f"{title}.", figure)
