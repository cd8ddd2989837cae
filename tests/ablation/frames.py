"""Runs with round numbers, and what a report makes of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from ablation.plan.grid import Configuration
from ablation.report.caveats import caveats
from ablation.report.load import load_results
from ablation.report.tables.pairs import compare
from ablation.report.tables.summary import summarise
from ablation.results.record import Record
from tests.ablation.synthetic import PLAIN, record, write_results

SD = Configuration("speculative", (("gamma", 4),))
NGRAM = Configuration("ngram")
CLEAN = {"commit": "a", "uncommitted_changes": False, "fixed": {"code": "c"}, "runs": []}


def ran(
    configuration: Configuration, id: str, decode_s: float, ar_s: float | None = 10.0, tokens: int = 100, **more: Any
) -> Record:
    """A run of `tokens` tokens, where AR took `ar_s` for as many."""
    about: dict[str, Any] = {"id": id, "new_tokens": tokens, "decode_s": decode_s, "tokens_per_s": tokens / decode_s}
    return record(configuration, **about | {"speedup": ar_s / decode_s if ar_s else None, "rounds": tokens} | more)


def against_ar(ratios: dict[Configuration, Iterable[float]], **more: Any) -> list[Record]:
    """A run of AR and of each configuration on each prompt, so much faster; `more` holds for the latter."""
    records = []
    for place, row in enumerate(zip(*ratios.values(), strict=True)):
        records.append(ran(PLAIN, f"p{place}", 10.0))
        records += [ran(one, f"p{place}", 10.0 / ratio, **more) for one, ratio in zip(ratios, row, strict=True)]
    return records


def table(tmp_path: Path, *records: Record) -> pd.DataFrame:
    """The frame of these records, by way of a results file."""
    return load_results(write_results(tmp_path / "r.csv", records))


def row(frame: pd.DataFrame, configuration: str, task: str = "all", processor: str = "greedy") -> pd.Series:
    """The only row of the summary that is this one."""
    summary = summarise(frame)
    found = summary[
        (summary["configuration"] == configuration) & (summary["task"] == task) & (summary["processor"] == processor)
    ]
    assert len(found) == 1
    return found.iloc[0]


def pairs_of(frame: pd.DataFrame) -> pd.DataFrame:
    """The pairs of a report."""
    return compare(frame, summarise(frame))


def cautions(frame: pd.DataFrame, manifest: dict[str, Any] | None = CLEAN) -> tuple[str, ...]:
    """The warnings of a report."""
    summary = summarise(frame)
    return caveats(frame, summary, compare(frame, summary), manifest)
