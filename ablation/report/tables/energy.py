"""Joules a token beside the speed: the setting that takes the least energy need not be the fastest."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.content import ReportSection
from ablation.report.load import in_order, with_reference
from ablation.report.tables.cells import Table, few_notes, interval, number, title_of
from ablation.report.tables.paired import ratio_interval
from utils.device.machine import BUSY_CORES
from utils.text import counted

TITLE = "Energy"
_HEADERS = (
    "configuration",
    "prompts",
    "J/token",
    "J/token against AR, median [95 % interval]",
    "tokens/s against AR, median [95 % interval]",
)
_MEANING = (
    "J/token is the mean over prompts, without the power of the idle machine. Ratios are medians over prompts of one "
    "prompt's ratio: below 1 a configuration takes less energy than AR. All that runs on the counted parts is in it."
)


def energy_section(frame: pd.DataFrame) -> ReportSection | None:
    """A table a processor, format and load; None where no run has its joules."""
    rows = _prepared(frame)
    if rows.empty:
        return None
    tables = [_table(str(processor), part) for processor, part in rows.groupby("processor", observed=True, sort=False)]
    return ReportSection(TITLE, tuple(tables), None, (), ())


def _prepared(frame: pd.DataFrame) -> pd.DataFrame:
    """The lossless runs with known joules; ratios to AR only where the same parts were counted for both."""
    rows = with_reference(frame, ["joules_per_token", "energy_of", "tokens_per_s"])
    rows = rows[~rows["failed"] & (rows["lossless"] == "true") & (rows["joules_per_token"] > 0)].copy()
    same = rows["ar_energy_of"].astype(str) == rows["energy_of"].astype(str)
    rows["log_energy"] = np.log(rows["joules_per_token"] / rows["ar_joules_per_token"].where(same))
    rows["log_speed"] = np.log(rows["tokens_per_s"] / rows["ar_tokens_per_s"].where(same))
    return rows


def _table(processor: str, rows: pd.DataFrame) -> Table:
    names = in_order(rows)
    lines = tuple(_line(name, rows[rows["configuration"] == name]) for name in names)
    parts = " or ".join(dict.fromkeys(rows["energy_of"].astype(str)))
    idle = rows["idle_watts"]
    counted_parts = f"Counted: {parts}. Idle power taken off: {idle.min():.1f} to {idle.max():.1f} W."
    notes = (_MEANING, counted_parts, *_beside_others(rows), *_best(rows, names))
    return Table(f"Energy under {processor}", _HEADERS, lines, (*notes, *few_notes([rows["id"].nunique()])))


def _line(name: str, rows: pd.DataFrame) -> tuple[str, ...]:
    by_prompt = rows.groupby("id", observed=True)
    joules = by_prompt["joules_per_token"].mean()
    ratios = [ratio_interval(by_prompt[column].mean().dropna()) for column in ("log_energy", "log_speed")]
    return title_of(name), str(len(joules)), number(joules.mean(), 3), *(interval(*ratio) for ratio in ratios)


def _beside_others(rows: pd.DataFrame) -> Iterator[str]:
    busy = int((rows["other_cores"] > BUSY_CORES).sum())
    if busy:
        yield f"Other processes kept cores busy in {busy} of {len(rows)} runs: their energy is in the joules."


def _best(rows: pd.DataFrame, names: list[str]) -> Iterator[str]:
    """Of each method with several settings, such as draft lengths, the fastest and the one of the least energy."""
    for method, part in rows.groupby("method", observed=True, sort=False):
        part = part[part["configuration"] != CONTROL]
        logs = part.groupby(["id", "configuration"], observed=True)[["log_energy", "log_speed"]].mean().unstack()
        both = logs.dropna()
        settings = [name for name in names if name in set(part["configuration"].astype(str))]
        if len(settings) < 2 or both.empty:
            continue
        energy, speed = (pd.DataFrame(both[column]).median()[settings] for column in ("log_energy", "log_speed"))
        least, fastest = str(energy.idxmin()), str(speed.idxmax())
        yield (
            f"{method}, {counted(len(both), 'prompt')}: fastest is {fastest} ({_said(speed, fastest, energy)}); "
            f"of the least energy is {least} ({_said(speed, least, energy)}). Both were chosen on these prompts."
        )


def _said(speed: pd.Series, name: str, energy: pd.Series) -> str:
    return f"{math.exp(speed[name]):.2f} of AR's speed, {math.exp(energy[name]):.2f} of its joules"
