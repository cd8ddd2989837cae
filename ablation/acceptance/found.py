"""All that was found along texts: figures, pairs, an engine's row beside ours, controls."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ablation.acceptance.engine_row import EngineRow, PositionDifference, differences, verdict
from ablation.acceptance.figures import AcceptanceFigure, Along, figures
from ablation.acceptance.paired import PairedAcceptance, compare_acceptance
from sampling.measure.acceptance.controls import Control
from sampling.measure.acceptance.estimate import IntervalEstimate
from sampling.measure.acceptance.place_rates import PlaceShare
from sampling.measure.acceptance.rounds import RoundSums
from sampling.measure.acceptance.trees import RankTree


@dataclass(slots=True)
class Found:
    """Call `finish` once. gamma: what groups of places and pairs are told for. engine: of the first drafter."""

    along: Along
    controls: Sequence[Control] = ()
    gamma: int = 0
    figures: list[AcceptanceFigure] = field(default_factory=list)
    pairs: list[PairedAcceptance] = field(default_factory=list)
    engine: list[PositionDifference] = field(default_factory=list)

    @property
    def texts(self) -> int:
        """How many."""
        return len(self.along.places)

    @property
    def verdict(self) -> str:
        """Where the engine differs; empty without one."""
        return verdict(self.engine) if self.engine else ""

    def finish(self, gamma: int, tree: RankTree | None, row: EngineRow | None) -> None:
        """Make all figures of what was met."""
        self.gamma = max(1, min(gamma, self.along.depth))
        self.figures = list(figures(self.along, self.gamma, tree))
        self.pairs = compare_acceptance(self.along.mets, self.gamma)
        if row is not None:
            mets = next(iter(self.along.mets.values()))
            self.engine = differences(RoundSums.of(mets, len(row.joint)).conditional(), row)

    def place_shares(self) -> list[PlaceShare]:
        """Acceptance of first drafts by place, for a plot."""
        by_place = [one for one in self.figures if one.kind and one.figure == "conditional" and one.value is not None]
        nan = float("nan")
        return [
            PlaceShare(
                one.drafter,
                one.kind,
                one.group,
                one.value or 0.0,
                nan if one.low is None else one.low,
                nan if one.high is None else one.high,
                one.places or 0.0,
            )
            for one in by_place
        ]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every figure as one flat object; unknown is null."""
        yield from (asdict(one) for one in self._all())

    def csv(self) -> str:
        """The same as a table."""
        out = io.StringIO()
        writer = csv.DictWriter(out, [f.name for f in fields(AcceptanceFigure)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: "" if value is None else value for name, value in line.items()} for line in self.lines()
        )
        return out.getvalue()

    def _all(self) -> Iterator[AcceptanceFigure]:
        yield from self.figures
        for pair in self.pairs:
            ends = IntervalEstimate(pair.ratio, pair.low, pair.high, float(pair.texts))
            yield _line(
                pair.one, "ratio of tokens", ends, gamma=pair.gamma, against=pair.other, p_holm=_known(pair.p_holm)
            )
        first = next(iter(self.along.mets))
        for each in self.engine:
            about = {"depth": each.position, "gamma": len(self.engine)}
            yield _line(first, "conditional in rounds", each.ours, **about)
            theirs = IntervalEstimate(each.theirs, float("nan"), float("nan"), each.ours.places)
            yield _line(first, "conditional in rounds", theirs, against="engine", p_holm=_known(each.p_holm), **about)
        for control in self.controls:
            yield _line(f"control: {control.name}", "conditional", control.found, depth=1)


def _known(number: float) -> float | None:
    return None if number != number else number


def _line(name: str, figure: str, found: IntervalEstimate, **about: Any) -> AcceptanceFigure:
    keys = {"kind": "", "group": "", "against": "", **about}
    value, low, high = map(_known, found[:3])
    return AcceptanceFigure(drafter=name, figure=figure, value=value, low=low, high=high, places=found.places, **keys)
