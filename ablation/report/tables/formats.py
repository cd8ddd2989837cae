"""Formats of the target's weights beside each other: never a speed without what the rounding costs in quality."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.content import ReportSection
from ablation.report.load import by_load, in_order
from ablation.report.tables.best import leave_one_out, told
from ablation.report.tables.cells import Table, few_notes, interval, number
from ablation.report.tables.summary import log_speedups, prompt_logs, speed_ratio, speeds
from ablation.results.manifest import qualities
from ablation.results.tables.quality import (
    QUALITY_HEADERS,
    QUALITY_MEANING,
    full_cells,
    quality_cells,
    quality_command,
)
from engines.spec import OURS, UNKNOWN
from sampling.loading.options import WEIGHTS
from sampling.measure.quality import Quality
from sampling.methods.tables import AR

FULL = WEIGHTS[0]
TITLE = "Formats of the target's weights"
_SPEED_HEADERS = ("AR tokens/s", "AR against full's, median", "best's tokens/s", "best against full's AR, median")
_SPEED_MEANING = (
    "AR and the methods say on each format what that format says: answers differ between formats. Tokens/s are means "
    "over prompts, ratios medians over prompts of one prompt's ratio to the AR of the full weights, in brackets their "
    "95 % intervals. The best of a format's lossless configurations is chosen for each prompt on all the others."
)


def formats_section(frame: pd.DataFrame, manifest: Mapping[str, Any] | None) -> ReportSection | None:
    """A table a processor and load; None where no two formats of ours can be compared: rounded ones need quality."""
    frame = frame[frame["engine"] == OURS]
    known = {name: quality for name, quality in qualities(manifest).items() if name in _several(frame)}
    shown = [name for name in _several(frame) if name == FULL or name in known]
    if len(shown) < 2:
        return None
    rows = frame[~frame["failed"] & (frame["lossless"] == "true") & frame["target_weights"].isin(shown)]
    tables = []
    for called, part in by_load(rows):
        best = {name: _best(part[part["target_weights"] == name]) for name in shown}
        lines = tuple(_line(name, part, best[name][0], known) for name in shown)
        notes = _notes(known, {name: chosen for name, (_, chosen) in best.items() if chosen})
        notes += few_notes([part["id"].nunique(), *(quality.prompts for quality in known.values())])
        tables.append(Table(f"Formats under {called}", (*QUALITY_HEADERS, *_SPEED_HEADERS), lines, notes))
    return ReportSection(TITLE, tuple(tables), None, (), ())


def not_compared(frame: pd.DataFrame, manifest: Mapping[str, Any] | None) -> Iterator[str]:
    """Which formats stand beside no other, as their quality is not known, and what measures it."""
    frame = frame[frame["engine"] == OURS]
    known = qualities(manifest)
    lacking = [name for name in _several(frame) if name not in (FULL, UNKNOWN, *known)]
    if lacking:
        names = " and ".join(lacking)
        yield (
            f"What {names} weights cost in quality is not known here, so their tokens/s are compared with those of no "
            f"other format: `{quality_command(lacking)}`, with the run's --target, measures it."
        )


def _several(frame: pd.DataFrame) -> list[str]:
    """The formats in a file, in their order; none where there is one."""
    formats = sorted(set(frame["target_weights"].astype(str)), key=[*WEIGHTS, *frame["target_weights"]].index)
    return formats if len(formats) > 1 else []


def _notes(known: Mapping[str, Quality], chosen: Mapping[str, str]) -> tuple[str, ...]:
    measured = "; ".join(
        f"{name} on {quality.prompts} prompts, {quality.tokens:,} tokens" for name, quality in known.items()
    )
    best = "; ".join(f"{name}: {names}" for name, names in chosen.items())
    sentences = (f"Best of each format, by the number of prompts: {best}.",) if best else ()
    return (*sentences, f"{QUALITY_MEANING} Measured: {measured}.", _SPEED_MEANING)


def _line(name: str, rows: pd.DataFrame, best: pd.Series, known: Mapping[str, Quality]) -> tuple[str, ...]:
    """A format's cells, from the rows of a processor and the runs of the format's best configurations."""
    cells = full_cells(next(iter(known.values()))) if name == FULL else quality_cells(name, known[name])
    plain = rows[rows["configuration"] == AR]
    full, rounded = (speeds(plain[plain["target_weights"] == weights_name]) for weights_name in (FULL, name))
    against = "1.00" if name == FULL and len(rounded) else interval(*speed_ratio(rounded, full))
    return (*cells, _mean(rounded), against, _mean(best), interval(*speed_ratio(best, full)))


def _mean(runs: pd.Series) -> str:
    """The mean over prompts of each prompt's mean."""
    return number(float(runs.groupby(level="id").mean().mean()) if len(runs) else math.nan, 1)


def _best(rows: pd.DataFrame) -> tuple[pd.Series, str]:
    """The runs of the configuration that is best on all other prompts, and which that was; none of a single prompt."""
    rows = rows[~rows["configuration"].isin([AR, CONTROL])]
    logs = prompt_logs(rows.assign(log_speedup=log_speedups(rows)), ["configuration"]).unstack("configuration").dropna()
    names = [name for name in in_order(rows) if name in logs]
    if not names or len(logs) < 2:
        return speeds(rows.head(0)), ""
    chosen = [names[place] for place in leave_one_out(logs[names].to_numpy())]
    by_prompt = dict(zip(logs.index.astype(str), chosen, strict=True))
    return speeds(rows[rows["configuration"].astype(str) == rows["id"].astype(str).map(by_prompt)]), told(chosen)
