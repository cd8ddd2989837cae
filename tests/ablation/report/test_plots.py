"""What plots of speeds show: no interval of few prompts, no axis for one point, whole titles, figures for crowds."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ablation.report.latex import escaped
from ablation.report.plots.figure import WIDTH, Plot, blank, prompts_and_intervals
from ablation.report.plots.layout import fitted, label_points, lay_out, legend_below, text_width
from ablation.report.plots.ledger import _COLOURS
from ablation.report.plots.medians import BEYOND, limits
from ablation.report.plots.speedup import MOST_TASKS, crowded, speedup_figure
from ablation.report.tables.cells import few_notes
from ablation.report.tables.paired import ratio_interval
from ablation.report.write import write_report
from tests.ablation.frames import SD, against_ar, table
from tests.ablation.synthetic import write_results

LONG = "nucleus 0.8 0.9, int8 weights, sixteen at a time, two a second, MMMM WWWW MMMM WWWW, on a machine far away"


def summary(speedups: Sequence[float], tasks: Sequence[str] = (), prompts: int = 8) -> pd.DataFrame:
    """Rows of a summary: a configuration a speedup, the same for each task, intervals of 5 % where there are any."""
    rows = []
    for task in ("all", *tasks):
        for place, speedup in enumerate(speedups):
            ends = (0.95 * speedup, 1.05 * speedup) if prompts >= 5 else (math.nan, math.nan)
            about = {"configuration": f"mtp gamma={place + 1}", "method": "mtp", "task": task, "prompts": prompts}
            rows.append(about | {"speedup": speedup, "speedup_low": ends[0], "speedup_high": ends[1]})
    return pd.DataFrame(rows)


def figure_of(rows: pd.DataFrame, processor: str = "greedy") -> Figure:
    figure = speedup_figure(rows, processor)
    assert isinstance(figure, Figure)
    return figure


def boxes_of(figure: Figure) -> list[Any]:
    """Where each text of a figure stands, but for those at ticks, in pixels, after it was laid out."""
    FigureCanvasAgg(figure)
    lay_out(figure)
    figure.canvas.draw()
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axis in figure.axes:
        texts += [axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts] if axis.get_visible() else []
    return [text.get_window_extent() for text in texts if text.get_text()]


def test_fewer_than_five_prompts_have_a_median_and_no_interval() -> None:
    for count in (1, 2, 4):
        middle, low, high = ratio_interval([0.1 * place for place in range(count)])
        assert middle > 0 and math.isnan(low) and math.isnan(high)
    middle, low, high = ratio_interval([0.1 * place for place in range(5)])
    assert low < middle < high
    assert few_notes([12, 5]) == few_notes([0]) == () and len(few_notes([12, 4, 3])) == 1


def test_every_form_of_a_report_says_once_why_there_is_no_interval(tmp_path: Path) -> None:
    from rich.console import Console

    report = write_report(write_results(tmp_path / "r.csv", against_ar({SD: (1.5, 2.0, 2.5, 1.8)})))
    with (tmp_path / "out.txt").open("w+", encoding="utf-8") as file:
        report.print(Console(file=file, width=200))
        file.seek(0)
        printed = file.read()
    forms = {name: (report.folder / name).read_text(encoding="utf-8") for name in ("report.md", "index.html")}
    (note,) = few_notes([4])
    assert printed.count(note) == 1 and "1.90x n.s." in printed and "ratio" in printed
    assert escaped(note) in (report.folder / "summary.tex").read_text(encoding="utf-8")
    for name, text in forms.items():
        speed = text[text.index("Speed, all tasks") : text.index("Drafts and output, all tasks")]
        assert speed.count(note) == 1 and "1.90" in speed and "[1." not in speed, name
        assert "median speedup" in speed and "ratio of sums" in speed, name
    assert pd.read_csv(report.folder / "summary.csv")["speedup_low"].isna().all()


def test_points_of_few_prompts_are_drawn_without_lines() -> None:
    (few,), (many,) = (figure_of(summary((1.2, 1.4), prompts=count)).axes for count in (4, 5))

    def longest(axis: Any) -> float:
        return max(float(np.ptp(path.vertices[:, 0])) for lines in axis.collections for path in lines.get_paths())

    assert longest(few) == 0.0 and longest(many) == pytest.approx(0.14)
    assert "too few for intervals" in prompts_and_intervals([3, 4])
    assert prompts_and_intervals([3, 7]).endswith("of 5 prompts or more")


def test_one_point_far_out_does_not_make_the_axis(tmp_path: Path) -> None:
    rows = summary((1.0, 1.1, 1.3, 9.3))
    low, high = limits(rows)
    assert low < 0.95 and 1.05 * 1.3 < high < 2.0
    figure = figure_of(rows)
    (axis,) = figure.axes
    assert axis.get_xlim() == (low, high) and [text.get_text() for text in axis.texts] == ["9.30"]
    (triangle,) = [line for line in axis.lines if line.get_marker() == ">"]
    assert list(triangle.get_xdata()) == [high]  # type: ignore[arg-type]
    assert BEYOND in figure.get_supxlabel()
    Plot("far", "", figure).save_svg(tmp_path)
    assert axis.get_xlim() == (low, high), "nothing moves it later"


@pytest.mark.parametrize("speedups", [(1.0, 1.2, 3.0), (1.0, 2.0, 3.0, 4.5), (0.5, 0.6), (1.0,), (8.0,)])
def test_an_axis_holds_medians_and_intervals_that_are_not_far_out(speedups: tuple[float, ...]) -> None:
    low, high = limits(summary(speedups))
    assert low < min(1.0, 0.95 * min(speedups)) and high > max(1.0, 1.05 * max(speedups))
    figure = figure_of(summary(speedups))
    assert not figure.axes[0].texts and BEYOND not in figure.get_supxlabel()


def test_many_tasks_are_a_table_of_figures_and_few_are_panels() -> None:
    tasks = [f"task{place}" for place in range(MOST_TASKS + 1)]
    few, many = (summary((1.0, 1.25, 0.8), tasks[:count]) for count in (MOST_TASKS, MOST_TASKS + 1))
    assert not crowded(few) and crowded(many)
    assert len(figure_of(few).axes) >= MOST_TASKS + 1
    left, right = figure_of(many).axes
    assert [text.get_text() for text in right.texts] == ["0.80"] * 7 + ["1.25"] * 7 + ["1.00"] * 7  # from below
    assert [label.get_text().split()[0] for label in right.get_xticklabels()] == tasks
    assert len(left.containers) == 1, "the medians of all tasks with their intervals"
    assert crowded(summary([1.0] * 40, tasks[:3])) and not crowded(summary([1.0] * 400))


def test_a_heat_table_of_any_number_of_tasks_fits_a_page() -> None:
    rows = summary((1.0, 11.5), [f"a task of number {place}" for place in range(26)])
    rows.loc[rows["task"] == "a task of number 3", "speedup"] = math.nan
    figure = figure_of(rows)
    assert figure.get_figwidth() == WIDTH and len(figure.axes) == 2 * 3
    told = [text.get_text() for axis in figure.axes[1::2] for text in axis.texts]
    assert len(told) == 52 - 2 and {"1.00", "11.5"} <= set(told)
    for box in boxes_of(figure):
        assert box.x0 >= 0 and box.x1 <= WIDTH * figure.dpi
    for axis in figure.axes[1::2]:
        column = axis.get_window_extent().width / (axis.get_xlim()[1] * figure.dpi)
        assert all(text_width(text.get_text(), 7.0) < column for text in axis.texts)


@pytest.mark.parametrize(
    "tasks", [(), ("code", "a task whose name has very many words in it", "long"), tuple("abcdefgh")]
)
def test_no_title_runs_out_of_its_figure(tasks: tuple[str, ...]) -> None:
    figure = figure_of(summary((1.0, 1.2), tasks), LONG)
    whole = "".join(text.get_text() for text in figure.texts).replace("\n", " ")
    boxes = boxes_of(figure)
    assert LONG in whole
    for box in boxes:
        assert box.x0 >= 0 and box.x1 <= figure.get_figwidth() * figure.dpi
        assert box.y0 >= 0 and box.y1 <= figure.get_figheight() * figure.dpi
    titles = [axis.title.get_window_extent() for axis in figure.axes if axis.title.get_text()]
    assert all(one.x1 <= other.x0 or one.y0 != other.y0 for one, other in pairwise(titles))


def test_text_is_broken_at_words_and_only_long_words_within() -> None:
    assert fitted("one two", 10, 9) == "one two" and fitted("", 1, 9) == ""
    assert fitted("one two", text_width("one tw", 9), 9) == "one\ntwo"
    lines = fitted("M" * 40, 1.0, 9).split("\n")
    assert len(lines) > 3 and "".join(lines) == "M" * 40 and all(text_width(line, 9) <= 1.0 for line in lines)


def test_a_legend_of_long_names_stays_inside() -> None:
    figure, (axis,) = blank("a", WIDTH, 3.0, 1, 1)
    for place in range(6):
        axis.plot([0, 1], label=f"{place} suffix_or_model hybrid_model=mtp, num_model_steps=3, suffix_score=0, max=0")
    legend_below(figure)
    assert figure.get_figheight() > 3.0
    assert all(box.x0 >= 0 and box.x1 <= WIDTH * figure.dpi for box in boxes_of(figure))


def test_words_beside_points_do_not_meet() -> None:
    figure, (axis,) = blank("a", WIDTH, 3.0, 1, 1)
    FigureCanvasAgg(figure)
    points = [(0.0, 0.0, "max 4"), (0.01, 0.01, "max 4"), (1.0, 1.0, "max 8"), (0.99, 1.0, "max 8")]
    axis.plot([x for x, _, _ in points], [y for _, y, _ in points], "o")
    label_points(axis, points)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert [text.get_text() for text in axis.texts] == [words for _, _, words in points]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_the_parts_of_a_bar_differ_in_grey_from_their_neighbours() -> None:
    grey = [float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) for colour in _COLOURS.values()]
    assert all(abs(one - other) > 0.15 for one, other in pairwise(grey))


def test_a_verdict_names_its_figure(tmp_path: Path) -> None:
    from ablation.report.tables.pairs import compare
    from ablation.report.tables.summary import summarise

    frame = table(tmp_path, *against_ar({SD: (1.5, 2.0, 2.5, 1.8, 1.6, 1.7)}))
    (verdict,) = compare(frame, summarise(frame))["verdict"]
    assert "(median, 95 % interval +" in verdict
