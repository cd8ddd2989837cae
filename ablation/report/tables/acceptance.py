"""Acceptance in numbers: by position in the draft, and by the place of the text where rounds began."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ablation.report.load import in_order
from ablation.report.tables.cells import Table, interval, number, title_of
from ablation.report.tables.rates import summed
from sampling.measure.acceptance.place_rates import PlaceShare, RoundAt
from sampling.measure.acceptance.places import KINDS, group_order
from utils.numbers.intervals import Ends, share_interval, studentised_ratio

# A share of fewer rounds than this is drawn hollow.
FEW_ROUNDS = 10

HEADS = {"output": "tokens of the answer before", "context": "tokens before", "phase": "phase", "turn": "turn"}
_MEANING = (
    "Alpha: accepted drafts over judged positions of the rounds that began there, with its 95 % interval over prompts. "
    "A round begins where the last one failed, so these rates depend on the draft length; infer.py acceptance has "
    "those that do not."
)

Counts = NDArray[np.float64]


class ShareAtPosition(NamedTuple):
    """A share of `rounds` rounds at a position (from 1), with its 95 % interval; NaN where few prompts know it."""

    position: int
    share: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Positions:
    """A configuration's rounds by prompt, a row each, `[n, K + 1]` and `[n, K]`.

    `hist[:, i]` accepted i drafts; `tested[:, i]` judged a draft at position i + 1.
    """

    method: str
    name: str
    hist: Counts
    tested: Counts

    @property
    def shares(self) -> list[float]:
        """Share of the rounds that accepted 0, 1, 2, ... drafts."""
        return [float(share) for share in self.hist.sum(axis=0) / self.hist.sum()]

    @property
    def rounds(self) -> int:
        """All of them."""
        return int(self.hist.sum())

    def mean(self) -> ShareAtPosition:
        """Accepted drafts a round. Its position says nothing."""
        accepted = self.hist @ np.arange(self.hist.shape[1])
        sums = accepted[:, None], self.hist.sum(axis=1, keepdims=True)
        return _shares(*sums, studentised_ratio(*sums))[0]

    def unconditional(self) -> list[ShareAtPosition]:
        """Share of all rounds that accepted the draft at each position."""
        accepted = self._accepted()
        rounds = np.broadcast_to(self.hist.sum(axis=1, keepdims=True), accepted.shape)
        return _shares(accepted, rounds, share_interval(accepted, rounds))

    def conditional(self) -> list[ShareAtPosition]:
        """Share of the rounds that judged a draft at each position that accepted it."""
        accepted = self._accepted()
        return _shares(accepted, self.tested, share_interval(accepted, self.tested))

    def _accepted(self) -> Counts:
        """Rounds that accepted the draft at each position, `[n, K]`. Example: hist 5 3 2 -> 5 at 1, 2 at 2."""
        from_behind: Counts = self.hist[:, ::-1].cumsum(axis=1)[:, ::-1]
        wanted = self.tested.shape[1]
        return np.pad(from_behind[:, 1 : wanted + 1], ((0, 0), (0, max(0, wanted + 1 - from_behind.shape[1]))))


def positions(frame: pd.DataFrame) -> list[Positions]:
    """One for each configuration that drafted, from the runs that did not fail."""
    rows = frame[~frame["failed"] & (frame["drafted"] > 0) & frame["accept_hist"].notna() & frame["tested_at"].notna()]
    figures = []
    for name in in_order(rows):
        part = rows[rows["configuration"] == name]
        groups = part.groupby("id", observed=True)
        hist, tested = (_matrix(summed(cells) for _, cells in groups[key]) for key in ("accept_hist", "tested_at"))
        figures.append(Positions(str(part["method"].iloc[0]), name, hist, tested))
    return figures


def _shares(parts: Counts, wholes: Counts, ends: Ends) -> list[ShareAtPosition]:
    sums = zip(parts.sum(axis=0), wholes.sum(axis=0), *ends, strict=True)
    return [
        ShareAtPosition(place, float(part / whole), float(a), float(b), int(whole))
        for place, (part, whole, a, b) in enumerate(sums, start=1)
        if whole
    ]


def _matrix(lists: Iterable[list[int]]) -> Counts:
    """Lists as rows, filled up with zeros."""
    rows = list(lists)
    made = np.zeros((len(rows), max(map(len, rows))))
    for place, row in enumerate(rows):
        made[place, : len(row)] = row
    return made


def place_tables(shares: Sequence[PlaceShare], rounds: Sequence[RoundAt]) -> tuple[Table, ...]:
    """A table a kind that has several groups: a row a configuration, a column a group."""
    tables = list[Table]()
    for kind in KINDS:
        own = [share for share in shares if share.kind == kind]
        groups = sorted({share.group for share in own}, key=lambda group: group_order(kind, group))
        if len(groups) < 2:
            continue
        names = list(dict.fromkeys(share.name for share in own))
        found = {(share.name, share.group): share for share in own}
        rows = tuple((title_of(name), *(_cell(found.get((name, group))) for group in groups)) for name in names)
        counts = [sum(one.place.group(kind) == group for one in rounds) for group in groups]
        counted = tuple(f"{group} ({count:,} rounds)" for group, count in zip(groups, counts, strict=True))
        notes = () if tables else (_MEANING,)
        tables.append(Table(f"Alpha by {HEADS[kind]}", ("configuration", *counted), rows, notes))
    return tuple(tables)


def _cell(share: PlaceShare | None) -> str:
    return number(float("nan")) if share is None else interval(share.share, share.low, share.high)
