"""The cells of the matrix: a configuration in one setting on one kind of text, over plain decoding in that setting."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.load import in_order
from ablation.report.tables.paired import JudgedComparison, enough, judge
from ablation.report.tables.summary import log_speedups, prompt_logs
from sampling.methods.tables import AR
from utils.numbers.intervals import FEWEST

SETTING = ["engine", "processor_alone", "rate", "batch", "target_weights"]
"""In the order in which settings are told apart: a format, within a load, within a processor."""
CELL = [*SETTING, "configuration", "task"]
FLOOR = 0.95
"""What the lower end of a cell's interval must reach: the floor of EAGLE-4's support matrix, there of one figure."""
_GREEDY = "greedy"

Mark = Literal["pays", "keeps pace", "open", "slower", "LOSSY", "too few", "noise"]
MARKS: dict[Mark, str] = {
    "pays": "the corrected test says faster, and the interval begins at 0.95 or above",
    "keeps pace": "no difference is shown, and the interval begins at 0.95 or above",
    "slower": "the corrected test says slower",
    "open": "none of these is shown",
    "too few": "too few prompts for any verdict",
    "LOSSY": "the text is not plain decoding's, so the speed is beside the point",
}


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One cell. speedup, low, high: the median over prompts and its interval; unknown is NaN.

    differ, ties, exact, uncompared: runs by how their ids compare with those of plain decoding. lossless: whether the
    accept rule keeps the target's distribution, by its tests.
    """

    engine: str
    target_weights: str
    processor: str
    batch: int
    rate: float
    configuration: str
    task: str
    prompts: int
    speedup: float
    low: float
    high: float
    p: float
    p_holm: float
    mark: Mark
    exact: int
    ties: int
    differ: int
    uncompared: int
    lossless: bool

    @property
    def setting(self) -> tuple[str, str, str, int, float]:
        """What its control has in common with it, besides the kind of text."""
        return self.engine, self.target_weights, self.processor, self.batch, self.rate

    @property
    def greedy(self) -> bool:
        """Whether there is one right text, so that ids can be compared."""
        return self.processor.split(" ")[0] == _GREEDY


@dataclass(frozen=True, slots=True)
class Matrix:
    """All cells, the control's among them. asked: how many were tested together; needed: prompts for a verdict."""

    cells: tuple[MatrixCell, ...]
    asked: int
    needed: int

    def frame(self) -> pd.DataFrame:
        """A row a cell, as in matrix.csv."""
        return pd.DataFrame([asdict(cell) for cell in self.cells], columns=list(MatrixCell.__dataclass_fields__))


def matrix_of(frame: pd.DataFrame) -> Matrix | None:
    """The cells of a results file, settings as they first appear; None where it has one setting, or no speedup.

    One family of tests: Holm's method is over all cells of all settings and kinds of text.
    """
    rows = frame[~frame["failed"] & frame["lossless"].notna() & (frame["configuration"] != AR)]
    if frame[SETTING].drop_duplicates().shape[0] < 2:
        return None
    logs = prompt_logs(rows.assign(log_speedup=log_speedups(rows)), CELL)
    samples = {key: part.to_numpy(float) for key, part in logs.groupby(level=CELL, observed=True)}
    asked = {key: sample for key, sample in samples.items() if _name(key) != CONTROL}
    if not asked:
        return None
    judged = dict(zip(asked, judge(list(asked.values())), strict=True))
    judged |= {key: judge([sample])[0] for key, sample in samples.items() if _name(key) == CONTROL}
    texts = _texts(rows)
    needed = max(FEWEST, enough(len(asked)))
    cells: dict[Any, MatrixCell] = {key: _cell(key, found, texts.loc[key], needed) for key, found in judged.items()}
    return Matrix(tuple(cells[key] for key in _ordered(rows) if key in cells), len(asked), needed)


def _name(key: Any) -> str:
    return str(key[CELL.index("configuration")])


def _texts(rows: pd.DataFrame) -> pd.DataFrame:
    """By cell, how many runs have the ids of plain decoding, tie, differ, or could not be compared; and the stamp."""
    words = rows["divergence_verdict"].astype(str)
    marks = {
        "exact": words == "exact",
        "ties": words == "tie",
        "differ": words == "BUG",
        "uncompared": rows["divergence_verdict"].isna(),
        "lossy": rows["lossless"].astype(str) == "false",
    }
    return pd.DataFrame(marks).groupby([rows[name] for name in CELL], observed=True).sum()


def _cell(key: Any, found: JudgedComparison, texts: Any, needed: int) -> MatrixCell:
    engine, processor, rate, batch, weights, configuration, task = key
    counts = {name: int(texts[name]) for name in ("exact", "ties", "differ", "uncompared")}
    kept = not texts["lossy"] and not counts["differ"]
    control = configuration == CONTROL
    return MatrixCell(
        *(str(engine), str(weights), str(processor), int(batch), float(rate), str(configuration), str(task)),
        *(found.prompts, found.ratio, found.low, found.high, found.p, found.p_holm),
        mark="LOSSY" if not kept else "noise" if control else mark_of(found, needed),
        exact=counts["exact"],
        ties=counts["ties"],
        differ=counts["differ"],
        uncompared=counts["uncompared"],
        lossless=not texts["lossy"],
    )


def mark_of(found: JudgedComparison, needed: int) -> Mark:
    """What a cell whose text is kept is called; needed: prompts without which nothing could be shown."""
    if found.prompts < needed:
        return "too few"
    if found.verdict == "slower":
        return "slower"
    if not found.low >= FLOOR:
        return "open"
    return "pays" if found.verdict == "faster" else "keeps pace"


def _ordered(rows: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """The cells' keys: settings in order, configurations in theirs, the control last, tasks as they first appear."""
    names = sorted(in_order(rows), key=lambda name: name == CONTROL)
    tasks = list(dict.fromkeys(rows["task"].astype(str)))
    for setting in _settings(rows):
        for name in names:
            yield from ((*setting, name, task) for task in tasks)


def _settings(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    """In order, value by value as they first appear. Turns rotate, so that whole settings appear in another one."""
    settings = list(rows[SETTING].drop_duplicates().itertuples(index=False, name=None))
    met = [list(dict.fromkeys(values)) for values in zip(*settings, strict=True)]
    return sorted(settings, key=lambda setting: [known.index(value) for known, value in zip(met, setting, strict=True)])


def spread(values: list[float]) -> tuple[float, float]:
    """The lowest and the highest of what is known; NaN of nothing."""
    known = [value for value in values if not np.isnan(value)]
    return (min(known), max(known)) if known else (float("nan"), float("nan"))
