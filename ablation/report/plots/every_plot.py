"""All plots of a result, and why any are missing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from ablation.report.plots.acceptance import histogram_figure, position_figure
from ablation.report.plots.figure import Plot, slug
from ablation.report.plots.ledger import ledger_figure
from ablation.report.plots.places import place_figure
from ablation.report.plots.speedup import crowded, gamma_figure, speedup_figure
from ablation.report.plots.trace import trace_figure
from ablation.report.tables.acceptance import positions
from ablation.results.traces.trace import trace_path
from sampling.measure.acceptance.place_rates import PlaceShare
from sampling.measure.ledger import PARTS
from utils.numbers.intervals import FEWEST

_MEDIAN = (
    "Dot: the median over prompts of tokens/s over those of AR on the same prompt, which is not the ratio of sums. "
    "Line: its 95 % interval over prompts, between two of their ratios, not corrected for the number of "
    f"configurations; fewer than {FEWEST} prompts have none. Right of 1.0 is faster than AR."
)
_CAPTIONS = {
    "speedup": (
        "Median speedup over AR by configuration and task",
        f"{_MEDIAN} A triangle at the border is a median beyond the axis, which is written beside it.",
    ),
    "heat": (
        "Median speedup over AR by configuration, over all tasks and each",
        f"Left: {_MEDIAN} Right: the median of each task, in figures; blue is faster than AR, orange slower, the more "
        "the further from 1.0.",
    ),
    "ledger": (
        "Where the time of a token went",
        f"{'; '.join(f'{part}: {meaning}' for part, meaning in PARTS.items())}. All rounds over all tokens, in the "
        "blocks with AR. AR's time over their sum is the ratio of sums, not the median speedup. "
        "The parts add up to what was measured; one below 0, which is noise, is not drawn.",
    ),
    "gamma": (
        "Median speedup and acceptance rate against gamma",
        "Configurations that differ in the draft length alone. Gamma is what a round asked for on average; a rule's "
        "limit stands beside its points. Points at one gamma are moved apart.",
    ),
    "positions": (
        "Acceptance by position in the draft",
        "Left: of all rounds; right: of the rounds that judged a draft there, so that those before it were accepted. "
        "Points at one position are moved apart.",
    ),
    "accepted": (
        "Accepted drafts a round",
        "Each row's bars add up to all rounds of the configuration; the target's own token comes on top.",
    ),
}


def processor_plots(frame: pd.DataFrame, summary: pd.DataFrame, processor: str) -> Iterator[Plot | str]:
    """The plots of one processor; in place of each that has no data, the sentence that says so."""
    rows = frame[frame["processor"] == processor]
    table = summary[summary["processor"] == processor]
    prompts = int(table["prompts"].max())
    shown = positions(rows)
    drawn = {
        "speedup": speedup_figure(table, processor),
        "ledger": ledger_figure(table, processor),
        "gamma": gamma_figure(rows, table, processor),
        "positions": position_figure(shown, processor, prompts),
        "accepted": histogram_figure(shown, processor, prompts),
    }
    for stem, figure in drawn.items():
        title, explained = _CAPTIONS["heat" if stem == "speedup" and crowded(table) else stem]
        if isinstance(figure, str):
            yield f"{title}: not drawn. {figure}"
        else:
            yield Plot(f"{stem}_{slug(processor)}", f"{title}, {processor}. {explained}", figure)


def place_plot(shares: Sequence[PlaceShare]) -> Plot:
    """The plot of acceptance by place."""
    caption = "Alpha by place. Lines: 95 % intervals over prompts. Points at one group are moved apart."
    return Plot("places", caption, place_figure(shares, "Alpha by the place where a round began"))


def answer_plot(results: Path) -> Plot | str:
    """The plot of one answer from the trace beside the results, or why there is none."""
    drawn = trace_figure(trace_path(results))
    if isinstance(drawn, str):
        return f"Gamma and entropy along one answer: not drawn. {drawn}"
    figure, caption = drawn
    return Plot("answer", caption, figure)
