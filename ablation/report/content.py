"""What a report says, once for Markdown and for the page."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from ablation.report.notes import gamma_notes, slow_notes, verdict_notes
from ablation.report.plots.figure import Plot
from ablation.report.tables.bounds import BoundRows
from ablation.report.tables.cells import Table, draft_table, factor_table, ledger_table, pair_table, speed_table
from ablation.report.tables.pairs import shown
from ablation.report.tables.summary import ALL
from ablation.results.manifest import profiles
from utils.text import counted
from utils.text import shown as shown_text

METHOD = (
    "Everything is paired: one block is a prompt, turn, processor, seed, repeat and length, in which every "
    "configuration ran once; a speedup is the tokens/s of a configuration over the tokens/s of AR in the same block.",
    "The unit of replication is the prompt. Its turns, seeds and repeats are not independent, so each prompt "
    "gives one number: the geometric mean of its paired ratios. The median speedup is the median of these over "
    "prompts, taken on logarithms so that A against B is the inverse of B against A. Its 95 % interval lies between "
    "two of their ratios, as far from either end: so many prompts as heads come of as many coins are below a median. "
    "The coverage is exact for any distribution, and stands below each table. Fewer than 5 prompts have no interval: "
    "the whole range of 4 holds the median in about 88 of 100 cases.",
    "tokens/s is the mean over prompts of each prompt's mean, with the standard deviation between prompts. The ratio "
    "of sums is all new tokens over all decoding seconds of a configuration, over the same for AR in the same blocks: "
    "long answers weigh more in it. Acceptance rate (accepted / drafted), alpha (accepted / tested positions) and "
    "tokens/round are ratios of sums over all runs; alpha has the interval of Korn and Graubard over prompts, "
    "tokens/round that of a studentised bootstrap (2000 draws, fixed seed); c is a median over runs; "
    "mean gamma is over rounds, its range over all rounds, H/ln V over runs. v is the time of a round's verification "
    "over that of AR's forward of one row; predicted is the median over prompts of the "
    "speedups that a profile's prices give for each run's own rounds, and measured / predicted the median of each "
    "prompt's ratio, 'off' where its interval leaves out 1; an error of the profile is common to all prompts, and so "
    "not in that interval; break-even is the tokens a round, and 'at "
    "alpha' the alpha, at which a configuration would be as fast as AR. The parts of a token's time are those of all "
    "rounds over all tokens.",
    "Every verdict is a test: Wilcoxon's signed-rank test on one log ratio a prompt (two-sided, exact up to 50 prompts "
    "without ties), p corrected by Holm's method for all questions of its family, at the level 0.05. The "
    "configurations against AR are one family in each table; the configurations against each other are another, over "
    "all tasks of a processor. An interval is of one ratio alone and is not corrected: it may leave out 1 where no "
    "difference is shown. Nor is one where the median and the test's ranks, which weigh by size, point to different "
    "sides. Rank-biserial is 1 where one side is faster on every prompt. 'Too few prompts to show any': "
    "even if all prompts agreed, the corrected p could not reach 0.05.",
    "The control is AR run once more in each block: its speedup is 1.0 but for noise, and it is tested alone. "
    "Configurations that drafted and emitted the same in every round are one under several names; their difference is "
    "noise and is not tested. Failed runs are not counted.",
)


@dataclass(frozen=True, slots=True)
class ReportSection:
    """What was found under one processor. `notes` say what is not shown, and why."""

    title: str
    tables: tuple[Table, ...]
    pairs: Table | None
    plots: tuple[Plot, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportContent:
    """A report without its form."""

    title: str
    facts: str
    warnings: tuple[str, ...]
    sections: tuple[ReportSection, ...]
    manifest: str | None


def make_section(
    processor: str,
    summary: pd.DataFrame,
    pairs: pd.DataFrame,
    plots: tuple[Plot, ...],
    notes: tuple[str, ...],
    bound: BoundRows,
) -> ReportSection:
    """The section of one processor, from the whole summary, all pairs and all bounds."""
    rows = summary[summary["processor"] == processor]
    tasks = list(dict.fromkeys(rows["task"]))
    # With a single task, its rows are those of all tasks.
    tasks = tasks if len(tasks) > 2 else [ALL]
    tables = [table for task in tasks for table in _tables(task, rows[rows["task"] == task], bound.of(processor, task))]
    family = pairs[pairs["processor"] == processor]
    visible = shown(family, dict(zip(rows["configuration"], rows["method"], strict=True)))
    title = f"{counted(len(family), 'pair')}, all tasks: each configuration against AR, and against each other"
    if len(visible) < len(family):
        title += (
            f": shown are the {len(visible)} against AR and between the first configurations of the methods; "
            "p is corrected over all of its family, and pairs.csv has all"
        )
    table = pair_table(title, visible) if len(visible) else None
    return ReportSection(f"Under {processor}", tuple(tables), table, plots, notes)


def _tables(task: str, rows: pd.DataFrame, bound: BoundRows) -> tuple[Table, ...]:
    """Speed, drafts and output, and time of one task, bounds last; why a row is slow is told once, for all tasks.

    So is where predictions and measurements part.
    """
    named = f"{task} tasks" if task == ALL else task
    notes = verdict_notes(rows) if task != ALL else chain(verdict_notes(rows), slow_notes(rows), gamma_notes(rows))
    notes_shown = (*notes, *(bound.notes if task == ALL else ()))
    both = pd.concat([rows, bound.rows], ignore_index=True) if len(bound.rows) else rows
    factors = factor_table(f"From predicted to measured, {named}", rows) if task == ALL else None
    return (
        speed_table(f"Speed, {named}", both, notes_shown),
        draft_table(f"Drafts and output, {named}", both),
        ledger_table(f"Where the time of a token went, {named}", rows),
        *filter(None, (factors,)),
    )


def facts(frame: pd.DataFrame, name: str) -> str:
    """One sentence on how much was measured."""
    counts = {word: frame[column].nunique() for word, column in _COUNTED.items()}
    if (formats := frame["target_weights"].nunique()) > 1:
        counts["format"] = formats
    amounts = ", ".join(f"{count} {word}{'s' if count != 1 else ''}" for word, count in counts.items())
    return f"{name}: {len(frame)} runs, {amounts}."


def manifest_text(manifest: Mapping[str, Any] | None) -> str | None:
    """The manifest for reading, without the prompts' texts and hundreds of times, which would bury the rest."""
    if manifest is None:
        return None
    if "profile" in manifest:
        measured = {name: profile.measured for name, profile in profiles(manifest).items()}
        manifest = {**manifest, "profile": {name: f"measured {when}" for name, when in measured.items()}}
    grid = manifest["fixed"].get("grid")
    if isinstance(grid, dict) and isinstance(grid.get("prompts"), dict):
        kept = {**grid, "prompts": f"{len(grid['prompts'])} prompts, in the manifest's file"}
        manifest = {**manifest, "fixed": {**manifest["fixed"], "grid": kept}}
    return shown_text(json.dumps(manifest, indent=2, ensure_ascii=False), lines=True)


_COUNTED = {
    "prompt": "id",
    "task": "task",
    "configuration": "configuration",
    "processor": "processor_alone",
    "seed": "seed",
}
