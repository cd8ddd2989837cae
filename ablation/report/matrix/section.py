"""The matrix in a report: one table, one picture, and what both mean."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from ablation.plan.grid import CONTROL, BatchLoad
from ablation.report.content import ReportSection
from ablation.report.load import with_reference
from ablation.report.matrix.cells import FLOOR, MARKS, Matrix, MatrixCell, matrix_of, spread
from ablation.report.matrix.picture import matrix_plot
from ablation.report.tables.cells import Table, interval, title_of
from engines.spec import OURS
from utils.text import counted

TITLE = "Matrix"
_MINUTE = 60.0
_SAMPLED = (
    "Law: sampled texts are not compared id by id. Their accept rule is one that keeps the target's distribution: "
    "chi-square tests of the conformance suite say so for each rule and drafter, and the check `distribution` of "
    "`infer.py selftest` for a pair and a machine. A rule that does not is LOSSY."
)


@dataclass(frozen=True, slots=True)
class MatrixReport:
    """The cells and the section of a report that shows them."""

    matrix: Matrix
    section: ReportSection

    @property
    def said(self) -> str:
        """How many cells there are of each kind, in one sentence."""
        return _counts(self.matrix)


def matrix_report(frame: pd.DataFrame) -> MatrixReport | None:
    """Of a results file with several formats, processors, loads or engines; None for any other."""
    matrix = matrix_of(frame)
    if matrix is None:
        return None
    tasks = list(dict.fromkeys(cell.task for cell in matrix.cells))
    groups = groupby(matrix.cells, key=lambda cell: (*cell.setting, cell.configuration))
    lines = tuple(_line(list(cells), tasks) for _, cells in groups)
    notes = (_counts(matrix), _meaning(matrix), *_texts(matrix), *_noise(matrix), *_apart(frame))
    table = Table("Each cell against its own plain decoding", ("method and setting", *tasks, "text"), lines, notes)
    return MatrixReport(matrix, ReportSection(TITLE, (table,), None, (matrix_plot(matrix),), ()))


def _line(cells: Sequence[MatrixCell], tasks: Sequence[str]) -> tuple[str, ...]:
    """A configuration in a setting, kind by kind."""
    first, by_task = cells[0], {cell.task: cell for cell in cells}
    shown = (_shown(by_task[task]) if task in by_task else "–" for task in tasks)
    return (f"{title_of(first.configuration)}: {setting_text(first)}", *shown, text_of(cells))


def setting_text(cell: MatrixCell) -> str:
    """Example: `int8 weights, greedy, 8 at a time`."""
    engine = "" if cell.engine == OURS else f"{cell.engine}, "
    load = BatchLoad(cell.batch, cell.rate or None).text
    return f"{engine}{cell.target_weights} weights, {cell.processor}, {load}"


def _shown(cell: MatrixCell) -> str:
    few = f" ({counted(cell.prompts, 'prompt')})" if cell.mark == "too few" else ""
    return f"{interval(cell.speedup, cell.low, cell.high)} {cell.mark}{few}"


def text_of(cells: Sequence[MatrixCell]) -> str:
    """How the texts of several cells compare with plain decoding's. Example: `99 exact, 1 tie`."""
    if not all(cell.lossless for cell in cells):
        return "LOSSY: its accept rule"
    totals = {name: sum(getattr(cell, name) for cell in cells) for name in ("exact", "ties", "differ", "uncompared")}
    if not cells[0].greedy and not (totals["exact"] or totals["ties"] or totals["differ"]):
        return "law"
    words = {"exact": "exact", "ties": "tie", "differ": "LOSSY", "uncompared": "not compared"}
    return ", ".join(f"{totals[name]} {word}" for name, word in words.items() if totals[name])


def _counts(matrix: Matrix) -> str:
    marks = Counter(cell.mark for cell in matrix.cells)
    told = ", ".join(f"{marks[mark]} {mark}" for mark in MARKS if marks[mark])
    return f"{counted(matrix.asked, 'cell')} of the matrix: {told}."


def _meaning(matrix: Matrix) -> str:
    marks = "; ".join(f"{mark}: {meaning}" for mark, meaning in MARKS.items())
    return (
        "A cell is the median over prompts of tokens/s over those of plain decoding of the same prompt, in the same "
        f"format, under the same processor, with as many texts at a time, with its 95 % interval. {marks}. "
        f"All {counted(matrix.asked, 'cell')} are one family of tests (Holm), in which a verdict needs "
        f"{matrix.needed} prompts. The floor of {FLOOR} is EAGLE-4's."
    )


def _texts(matrix: Matrix) -> Iterator[str]:
    if any(cell.greedy for cell in matrix.cells):
        yield (
            "Exact: the ids are plain decoding's in the same setting. Tie: they part where two logits are closer than "
            "the number format resolves. LOSSY: they part elsewhere."
        )
    if not all(cell.greedy for cell in matrix.cells):
        yield _SAMPLED


def _noise(matrix: Matrix) -> Iterator[str]:
    """What plain decoding once more shows."""
    medians = [cell.speedup for cell in matrix.cells if cell.configuration == CONTROL]
    if medians:
        low, high = spread(medians)
        yield f"Plain decoding once more is at {low:.2f} to {high:.2f} over its {counted(len(medians), 'cell')}: noise."


def _apart(frame: pd.DataFrame) -> Iterator[str]:
    """How long after or before its plain run a run began."""
    times = frame.assign(at=pd.to_datetime(frame["started"].astype(str), errors="coerce", utc=True))
    rows = with_reference(times, ["at"])
    apart = (rows["at"] - rows["ar_at"]).abs().dt.total_seconds().dropna() / _MINUTE
    if len(apart):
        yield (f"A run and its plain run began {apart.median():.1f} minutes apart (median), {apart.max():.1f} at most.")
