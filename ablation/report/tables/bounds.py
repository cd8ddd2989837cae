"""Rows of the summary for bounds: what each drafter could have brought at most, from the full trace beside results."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ablation.report.load import load_results
from ablation.report.tables.summary import summarise
from ablation.results.computed import BOUND, BOUND_METHOD
from ablation.results.record import Record
from ablation.results.store import Store
from ablation.results.table import columns, row
from ablation.results.traces.trace import is_full, trace_path
from sampling.methods.tables import AR
from utils.errors import UserError

UNTESTED = "computed, not tested"
ABOUT = (
    "Rows that begin with 'bound:' were computed, not run, from the full trace beside these results, and no rule is "
    "known to reach them: they are no methods and nothing is tested of them. The oracle knows what will be accepted of "
    "the drafts that were recorded, 8 a round and more where a run had more, and has no other verified; the best fixed "
    "length is the one that takes the fewest seconds over all prompts, or on each."
)
FITTED_COST = (
    "A round costs the mean time of verifying as many rows on the same prompt, a line through the steps of drafting, "
    "and the mean of the rest, fitted to the rounds that were measured (docs/replay.md)."
)


@dataclass(frozen=True, slots=True)
class BoundRows:
    """Rows as in the summary, none where no full trace lies beside the results, and what has to be said of them."""

    rows: pd.DataFrame
    notes: tuple[str, ...]

    def of(self, processor: str, task: str) -> "BoundRows":
        """Those under one processor, of one task."""
        if not len(self.rows):
            return self
        rows = self.rows[(self.rows["processor"] == processor) & (self.rows["task"] == task)]
        return BoundRows(rows, self.notes if len(rows) else ())


NO_BOUNDS = BoundRows(pd.DataFrame(), ())


def bound_rows(results: Path) -> BoundRows:
    """The bounds of a results file. A trace that is damaged has none, and the notes say why."""
    trace = trace_path(results)
    if not is_full(trace):
        return NO_BOUNDS
    # Late, so that a report without bounds loads no torch.
    from ablation.results.traces.bounds import bounds
    from ablation.results.traces.generations import read_generations
    from ablation.results.traces.replay import Replays

    try:
        replays = Replays(read_generations(trace))
        bounds_found = bounds(replays)
        if not bounds_found.records:
            return BoundRows(pd.DataFrame(), bounds_found.notes)
        frame = frame_of([*replays.references(replays.drafting), *bounds_found.records])
    except UserError as error:
        return BoundRows(pd.DataFrame(), (f"There are no bounds: {error}",))
    return BoundRows(_stripped(summarise(frame)), (f"{ABOUT} {FITTED_COST}", *bounds_found.notes))


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """Records as a frame, as `load_results` makes one of a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "computed.csv"
        with Store(path, columns()) as store:
            for record in records:
                store.append(row(record))
        return load_results(path)


def _stripped(summary: pd.DataFrame) -> pd.DataFrame:
    """The rows of the bounds, without any test's findings."""
    rows = summary[summary["configuration"].str.startswith(BOUND)].assign(method=BOUND_METHOD, against_ar=UNTESTED)
    assert AR not in set(rows["configuration"])
    return rows.assign(**dict.fromkeys(("p", "p_holm", "effect"), np.nan))
