"""A price that the rounds themselves correct."""

from collections.abc import Callable
from dataclasses import dataclass, field

from egag.cost_model import CostModel
from egag.expected_round import ExpectedRound
from utils.events import Round

_FORGETTING = 0.95
TRUST = 10.0
"""Rounds that a measured price is worth at the start."""
# A round that something else disturbed counts as at most so many times what was expected.
_MOST = 3.0
# For fewer drafts than these the seconds of a round are listed, once a round.
_LISTED = 18
_ALIKE = 4.0
"""Rounds with so many drafts that a price which is off for all alike is worth."""


@dataclass(slots=True)
class CorrectionFactor:
    """Seconds that were observed over those that were predicted, both fading round by round. 1 = as predicted.

    trust: predicted seconds are right at the start as if so many rounds of the first one's length had shown it.
    """

    trust: float = 0.0
    observed: float = 0.0
    predicted: float = 0.0

    @property
    def known(self) -> bool:
        """Whether anything speaks for a value."""
        return self.predicted > 0.0 or self.trust > 0.0

    @property
    def value(self) -> float:
        """1 where nothing is known."""
        return self.observed / self.predicted if self.predicted > 0.0 else 1.0

    def update(self, observed: float, predicted: float) -> None:
        """Learn from one round."""
        if predicted <= 0.0:
            return
        if not self.predicted:
            self.observed = self.predicted = self.trust * predicted
        if self.predicted:
            observed = min(observed, _MOST * self.value * predicted)
        self.observed = _FORGETTING * self.observed + observed
        self.predicted = _FORGETTING * self.predicted + predicted


@dataclass(slots=True)
class TargetCorrection:
    """How far off the price of the target's side is: for all rounds alike, and for so many drafts beside that.

    A length whose price happens to be too low would be chosen for it, round after round: what those rounds take tells.
    """

    whole: CorrectionFactor = field(default_factory=CorrectionFactor)
    changes: int = 0
    measured_s: bool = False
    _counts: dict[int, CorrectionFactor] = field(default_factory=dict)

    def measured(self) -> None:
        """Prices are in measured seconds from now on, once: what was learnt of guessed ones is no factor of these."""
        if not self.measured_s:
            self.whole, self.measured_s = CorrectionFactor(TRUST), True
            self._counts.clear()
            self.changes += 1

    def value(self, drafts: float) -> float:
        """Observed over predicted seconds of a round with so many drafts; of a mean number, for all alike."""
        measured = self._counts.get(drafts) if isinstance(drafts, int) else None
        return self.whole.value if measured is None else self.whole.value * measured.value

    def scaled(self, priced: list[float]) -> list[float]:
        """The seconds of 0, 1, ... drafts as rounds say that they are."""
        whole = self.whole.value
        seconds = [whole * seconds_of for seconds_of in priced]
        for drafts, measured in self._counts.items():
            if drafts < len(seconds):
                seconds[drafts] *= measured.value
        return seconds

    def update(self, drafts: int, observed: float, predicted: float) -> None:
        """Learn from one round."""
        self.changes += 1
        self.whole.update(observed, predicted)
        if drafts not in self._counts:
            self._counts[drafts] = CorrectionFactor(_ALIKE)
        self._counts[drafts].update(observed, self.whole.value * predicted)


@dataclass(slots=True)
class OnlineCostModel:
    """A `CostModel` times what rounds say of it: of what the target's side takes, and of what the drafts take.

    Longer contexts, another kernel, a busy machine and a price that nobody measured show in the rounds, and are learnt
    from them. Drafts that were not seen yet are thought to be off as much as the target is, so that a price in
    forwards of the target is one in seconds after the first round. target may be shared by the drafters of one target.

    Example: 20 ms were predicted and 30 ms observed, round after round -> every forward counts half as much again.
    """

    cost_model: CostModel
    target: TargetCorrection = field(default_factory=TargetCorrection)
    drafts: CorrectionFactor = field(default_factory=CorrectionFactor)
    _priced: tuple[CostModel, list[float]] | None = field(default=None, repr=False)
    _listed: tuple[int, list[float], list[float]] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, cost_model: CostModel, target: TargetCorrection | None = None) -> "OnlineCostModel":
        """One that trusts the price as far as it was measured."""
        trust = TRUST if cost_model.measured else 0.0
        return cls(
            cost_model,
            target or TargetCorrection(CorrectionFactor(trust), measured_s=cost_model.measured),
            CorrectionFactor(trust),
        )

    def on(self, cost_model: CostModel, learnt: bool) -> "OnlineCostModel":
        """On another cost model, such as that of another context; by how much it is off, where that is known, stays.

        learnt: rounds have shown what drafts take as well.
        """
        guessed = cost_model.measured and not self.cost_model.measured
        if not learnt:
            if guessed:
                self.target.measured()
            return OnlineCostModel.of(cost_model, self.target)
        self.cost_model = cost_model
        if guessed:  # the factors were seconds over forwards
            self._measured()
        return self

    def without_drafts(self) -> ExpectedRound:
        """A round that drafts nothing."""
        return ExpectedRound(1.0, self.verify_s(0))

    def _measured(self) -> None:
        """The price is in measured seconds from now on, and was in guessed ones."""
        self.target.measured()
        self.drafts = CorrectionFactor(TRUST)

    def verify_s(self, drafts: float) -> float:
        """The target's side of a round: its forward and the rest."""
        if isinstance(drafts, int) and drafts < _LISTED:
            return self._list()[drafts]
        return self.target.value(drafts) * (self.cost_model.verify_s(drafts) + self.cost_model.rest_s)

    def draft_s(self, steps: float) -> float:
        """Drafting so many tokens, or levels of a tree."""
        factor = self.drafts if self.drafts.known else self.target.whole
        return factor.value * self.cost_model.draft_s(steps)

    def seconds(self, drafts: float, steps: float | None = None) -> float:
        """A whole round. steps: of drafting, where they are not the drafts that are verified."""
        return self.verify_s(drafts) + self.draft_s(drafts if steps is None else steps)

    def after(self, steps: float) -> Callable[[int], float]:
        """The seconds of a round by how many drafts are verified, after so many steps: to be asked many times."""
        drafting, listed = self.draft_s(steps), self._list()
        return lambda drafts: (listed[drafts] if drafts < _LISTED else self.verify_s(drafts)) + drafting

    def _list(self) -> list[float]:
        """The target's side by drafts, computed once a round from what the price says, which is read once."""
        cost_model, target = self.cost_model, self.target
        if self._priced is None or self._priced[0] is not cost_model:
            self._priced = cost_model, [cost_model.verify_s(drafts) + cost_model.rest_s for drafts in range(_LISTED)]
        priced = self._priced[1]
        if self._listed is None or self._listed[0] != target.changes or self._listed[1] is not priced:
            self._listed = target.changes, priced, target.scaled(priced)
        return self._listed[2]

    def see_target(self, round: Round) -> None:
        """Learn from what the target's side took; where nothing was drafted, all of it."""
        drafts = len(round.drafts)
        seconds = round.verify_s + round.other_s + (0.0 if drafts else round.draft_s)
        self.target.update(drafts, seconds, self.cost_model.verify_s(drafts) + self.cost_model.rest_s)

    def see_drafts(self, round: Round, steps: int) -> None:
        """Learn from what so many steps of drafting took."""
        self.drafts.update(round.draft_s, self.cost_model.draft_s(steps))
