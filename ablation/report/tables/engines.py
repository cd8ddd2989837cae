"""Several engines on the same questions: what drafts are worth on each, and what the engines are worth."""

import math
from typing import Any

import pandas as pd

from ablation.report.content import ReportSection
from ablation.report.load import by_load, in_order
from ablation.report.tables.cells import Table, few_notes, interval, number, title_of
from ablation.report.tables.summary import ALL, speed_ratio, speeds
from ablation.results.record import DIFFERS
from engines.spec import OURS, UNKNOWN
from sampling.methods.tables import AR

TITLE = "Engines"
_HEADERS = (
    *("configuration", "engine", "prompts", "tok/s", "median speedup there [95 %]", "tok/round", "accepted, drafted"),
    *("ours / its, median [95 %]", "median with the prompt", "referee"),
)
_MEANING = (
    "Tokens/s are means over an engine's own prompts. A speedup is against the same engine's plain decoding: what "
    "drafts are worth there. Ours / its: tokens/s of our loop over that engine's with the same configuration, the "
    "median over prompts of one prompt's ratio: what the engines are worth; with the prompt: the same over the whole "
    "answer, where tok/s are of the tokens behind the first. Rounds, drafts and accepted ones are as each engine tells "
    "them; a dash where it does not. Referee: greedy answers that our target, reading prompt and answer at once, has "
    "no better token for anywhere."
)


def engines_section(frame: pd.DataFrame, summary: pd.DataFrame) -> ReportSection | None:
    """A table a processor and load; None where there is one engine."""
    if frame["engine"].nunique() < 2:
        return None
    rows = frame.assign(whole_tps=frame["new_tokens"] / frame["wall_s"])
    tables = tuple(
        _table(f"Engines under {name}", part, summary) for name, part in by_load(rows) if part["engine"].nunique() > 1
    )
    return ReportSection(TITLE, tables, None, (), ()) if tables else None


def _table(title: str, rows: pd.DataFrame, summary: pd.DataFrame) -> Table:
    of_all = summary[summary["task"] == ALL].set_index(["processor", "configuration"])
    lines = []
    for name in in_order(rows):
        part = rows[rows["configuration"] == name]
        ours = part[part["engine"] == OURS]
        several = ours["target_weights"].nunique() > 1
        for (engine, weights), rows_there in part.groupby(["engine", "target_weights"], observed=True, sort=False):
            called = f"{engine}, {weights}" if several and weights != UNKNOWN else str(engine)
            lines.append((title_of(name), called, *_cells(name, rows_there, ours, of_all)))
    prompts = rows.groupby(["engine", "configuration"], observed=True)["id"].nunique()
    return Table(title, _HEADERS, tuple(lines), (_MEANING, *few_notes(prompts)))


def _cells(name: str, theirs: pd.DataFrame, ours: pd.DataFrame, of_all: pd.DataFrame) -> tuple[str, ...]:
    summary_row: Any = of_all.loc[(str(theirs["processor"].iloc[0]), name)]
    itself, failed = theirs["engine"].iloc[0] == OURS, int(theirs["failed"].sum())
    theirs, ours = theirs[~theirs["failed"]], ours[~ours["failed"]]
    if theirs.empty:
        return ("0", *(["–"] * (len(_HEADERS) - 4)), f"{failed} failed")
    rounds, drafted = theirs["rounds"].sum(min_count=len(theirs)), theirs["drafted"].sum(min_count=len(theirs))
    accepted = theirs["accepted"].sum(min_count=len(theirs))
    return (
        str(theirs["id"].nunique()),
        number(summary_row["tokens_per_s_mean"], 1),
        "1.00"
        if name == AR
        else interval(summary_row["speedup"], summary_row["speedup_low"], summary_row["speedup_high"]),
        number(theirs["new_tokens"].sum() / rounds),
        f"{number(accepted, 0)}, {number(drafted, 0)}",
        "" if itself or ours.empty else _ratio(ours, theirs, "tokens_per_s"),
        "" if itself or ours.empty else _ratio(ours, theirs, "whole_tps"),
        _referee(theirs) + (f"; {failed} failed" if failed else ""),
    )


def _ratio(ours: pd.DataFrame, theirs: pd.DataFrame, column: str) -> str:
    """The median over prompts of our speed over theirs on the same questions, for each format of ours."""
    ratios, other = [], speeds(theirs, column)
    for weights, rows_here in ours.groupby("target_weights", observed=True, sort=False):
        ratio = interval(*speed_ratio(speeds(rows_here, column), other))
        ratios.append(f"{weights} {ratio}" if ours["target_weights"].nunique() > 1 else ratio)
    return "; ".join(ratios)


def _referee(rows: pd.DataFrame) -> str:
    judged = rows["referee"].dropna()
    if judged.empty:
        return "–"
    differ, furthest = int((judged == DIFFERS).sum()), rows["referee_behind"].max()
    agreed = f"{len(judged) - differ} of {len(judged)} consistent"
    return agreed if math.isnan(furthest) or not differ else f"{agreed}, up to {furthest:.2g} behind"
