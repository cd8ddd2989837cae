"""All plots of a result, and why any are missing."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ablation.report.figure import Plot, slug
from ablation.report.plot_acceptance import histogram_figure, position_figure, positions
from ablation.report.plot_speedup import gamma_figure, speedup_figure
from ablation.report.plot_trace import trace_figure
from ablation.results.trace import trace_path


def processor_plots(frame: pd.DataFrame, summary: pd.DataFrame, processor: str) -> Iterator[Plot | str]:
    """The plots of one processor; in place of each that has no data, the sentence that says so."""
    rows = frame[frame["processor"] == processor]
    table = summary[summary["processor"] == processor]
    prompts = int(table["prompts"].max())
    found = positions(rows)
    drawn: dict[str, tuple[str, Figure | str]] = {
        "speedup": ("Speedup over AR by configuration and task", speedup_figure(table, processor)),
        "gamma": ("Speedup and acceptance rate against gamma", gamma_figure(rows, table, processor)),
        "positions": ("Acceptance by position in the draft", position_figure(found, processor, prompts)),
        "accepted": ("Accepted drafts a round", histogram_figure(found, processor, prompts)),
    }
    for stem, (caption, figure) in drawn.items():
        if isinstance(figure, str):
            yield f"{caption}: not drawn. {figure}"
        else:
            yield Plot(f"{stem}_{slug(processor)}", f"{caption}, {processor}", figure)


def answer_plot(results: Path) -> Plot | str:
    """The plot of one answer from the trace beside the results, or why there is none."""
    found = trace_figure(trace_path(results))
    if isinstance(found, str):
        return f"Gamma and entropy along one answer: not drawn. {found}"
    figure, caption = found
    return Plot("answer", caption, figure)
