"""A cost model that the measured rounds correct."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from egag.cost_model import CostModel
from egag.expected_round import ExpectedRound
from egag.rollback_price import TakenBack
from utils.events import Round

_FORGETTING = 0.95
TRUST = 10.0
"""The initial weight of a measured cost, in rounds."""
# A disturbed round counts as at most this multiple of the expected seconds.
_MOST = 3.0
# The seconds of a round are tabulated once per round for fewer drafts than this.
_LISTED = 18
_ALIKE = 4.0
"""The weight of the common factor against the factor of one number of drafts, in rounds."""


@dataclass(slots=True)
class CorrectionFactor:
    """Observed over predicted seconds, both with a decay per round. 1 = as predicted.

    trust: the initial weight of the prediction, in rounds of the first round's length.
    """

    trust: float = 0.0
    observed: float = 0.0
    predicted: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the factor has any evidence."""
        return self.predicted > 0.0 or self.trust > 0.0

    @property
    def value(self) -> float:
        """The factor; 1 without evidence."""
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
    """The correction of the target's cost: a common factor, and the mean factor of the rounds of each number of drafts.

    A length with a predicted cost that is too low would be chosen again and again. Its own rounds correct this. They
    are kept as observed, whatever the common factor was: that follows the lengths that are played most.

    again: tokens that were read again over those that the rejected rounds left. It exceeds 1 where several rejections
    in a row go back to the same saved state. owed: what the last round left. paid: what rounds behind a rejection took
    longer, over the price of that.
    """

    whole: CorrectionFactor = field(default_factory=CorrectionFactor)
    changes: int = 0
    measured_s: bool = False
    again: CorrectionFactor = field(default_factory=lambda: CorrectionFactor(TRUST))
    owed: float = 0.0
    paid: CorrectionFactor = field(default_factory=lambda: CorrectionFactor(TRUST))
    _counts: dict[int, CorrectionFactor] = field(default_factory=dict)

    def measured(self) -> None:
        """Switch to measured seconds, once: factors learnt for assumed costs do not apply to them."""
        if not self.measured_s:
            self.whole, self.measured_s = CorrectionFactor(TRUST), True
            self._counts.clear()
            self.changes += 1

    def value(self, drafts: float) -> float:
        """Observed over predicted seconds of a round with `drafts` drafts.

        A mean number of drafts has a factor between those of the numbers beside it.
        """
        below = int(drafts)
        own = self._counts.get(below)
        factor = self.whole.value if own is None else self._mean(own)
        above = drafts - below
        return factor + above * (self.value(below + 1) - factor) if above else factor

    def scaled(self, priced: list[float]) -> list[float]:
        """The corrected seconds of 0, 1, ... drafts."""
        whole = self.whole.value
        seconds = [whole * seconds_of for seconds_of in priced]
        for drafts, own in self._counts.items():
            if drafts < len(seconds):
                seconds[drafts] = self._mean(own) * priced[drafts]
        return seconds

    def _mean(self, own: CorrectionFactor) -> float:
        """The mean of the factors of a length's rounds and of the common one."""
        return (own.observed + _ALIKE * self.whole.value) / (own.predicted + _ALIKE)

    def update(self, drafts: int, observed: float, predicted: float) -> None:
        """Learn from one round."""
        self.changes += 1
        self.whole.update(observed, predicted)
        if predicted > 0.0:
            factor = min(observed / predicted, _MOST * self.whole.value)
            self._counts.setdefault(drafts, CorrectionFactor()).update(factor, 1.0)

    def rounds(self, drafts: int) -> float:
        """How many rounds with so many drafts were seen, without those that faded: 20 at most."""
        own = self._counts.get(drafts)
        return 0.0 if own is None else own.predicted

    def count_reread(self, round: Round) -> None:
        """Learn how much is read again. A text's first round pays for none before it."""
        if round.number:
            self.again.update(float(round.reread), self.owed)
        self.owed = TakenBack.of_round(round).reread


@dataclass(slots=True)
class OnlineCostModel:
    """A `CostModel` times correction factors from the rounds: one for the target's side, one for drafting.

    The factors capture longer contexts, another kernel, a busy machine and costs without a measurement. Before the
    first drafts the drafting factor equals the target's. Costs in forwards of the target thus become seconds after the
    first round. target: may be shared by the drafters of one target.

    Example: predicted 20 ms and observed 30 ms, round after round -> every forward counts 1.5 times.
    """

    cost_model: CostModel
    target: TargetCorrection = field(default_factory=TargetCorrection)
    drafts: CorrectionFactor = field(default_factory=CorrectionFactor)
    _priced: tuple[CostModel, list[float]] | None = field(default=None, repr=False)
    _listed: tuple[int, list[float], list[float]] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, cost_model: CostModel, target: TargetCorrection | None = None) -> "OnlineCostModel":
        """A model with the initial weight of a measured or assumed cost."""
        trust = TRUST if cost_model.measured else 0.0
        return cls(
            cost_model,
            target or TargetCorrection(CorrectionFactor(trust), measured_s=cost_model.measured),
            CorrectionFactor(trust),
        )

    def on(self, cost_model: CostModel, learnt: bool) -> "OnlineCostModel":
        """The same factors, where known, on another cost model, such as that of another context length.

        learnt: whether rounds have shown the cost of drafting as well.
        """
        guessed = cost_model.measured and not self.cost_model.measured
        if not learnt:
            if guessed:
                self.target.measured()
            return OnlineCostModel.of(cost_model, self.target)
        self.cost_model = cost_model
        if guessed:  # the factors were in seconds per forward
            self._measured()
        return self

    def without_drafts(self) -> ExpectedRound:
        """The expected round without drafts."""
        return ExpectedRound(1.0, self.verify_s(0))

    def _measured(self) -> None:
        """Switch from assumed costs to measured seconds."""
        self.target.measured()
        self.drafts = CorrectionFactor(TRUST)

    def verify_s(self, drafts: float) -> float:
        """Seconds of the target's side of a round: its forward and the rest."""
        if isinstance(drafts, int) and drafts < _LISTED:
            return self._list()[drafts]
        return self.target.value(drafts) * (self.cost_model.verify_s(drafts) + self.cost_model.rest_s)

    def draft_s(self, steps: float) -> float:
        """Seconds of drafting `steps` tokens, or levels of a tree."""
        factor = self.drafts if self.drafts.known else self.target.whole
        return factor.value * self.cost_model.draft_s(steps)

    def seconds(self, drafts: float, steps: float | None = None) -> float:
        """Seconds of a whole round. steps: the steps of drafting, if they differ from the verified drafts."""
        return self.verify_s(drafts) + self.draft_s(drafts if steps is None else steps)

    def after(self, steps: float) -> Callable[[int], float]:
        """The seconds of a round as a function of its verified drafts, after `steps` steps of drafting.

        The function is made for many calls.
        """
        drafting, listed = self.draft_s(steps), self._list()
        return lambda drafts: (listed[drafts] if drafts < _LISTED else self.verify_s(drafts)) + drafting

    def _list(self) -> list[float]:
        """The target's side by number of drafts, computed once per round."""
        cost_model, target = self.cost_model, self.target
        if self._priced is None or self._priced[0] is not cost_model:
            self._priced = cost_model, [cost_model.verify_s(drafts) + cost_model.rest_s for drafts in range(_LISTED)]
        priced = self._priced[1]
        if self._listed is None or self._listed[0] != target.changes or self._listed[1] is not priced:
            self._listed = target.changes, priced, target.scaled(priced)
        return self._listed[2]

    @property
    def rolls_back(self) -> Callable[[TakenBack], float] | None:
        """`rollback_s`; None where taking tokens back is free."""
        return self.rollback_s if self.cost_model.rollback else None

    def rollback_s(self, taken: TakenBack) -> float:
        """Seconds of taking tokens back after a round, at the target's present speed."""
        if not self.cost_model.rollback:
            return 0.0
        return self._taking_s(replace(taken, reread=self.target.again.value * taken.reread))

    def _taking_s(self, taken: TakenBack) -> float:
        """Seconds of taking exactly this much back."""
        return self.target.paid.value * self.target.whole.value * self.cost_model.rollback_s(taken)

    def priced(self, round: Round) -> Round:
        """The round with the seconds that it was expected to take, for who does not read the clock."""
        drafts = len(round.drafts)
        return replace(round, draft_s=self.draft_s(drafts), verify_s=self.verify_s(drafts), other_s=0.0)

    def caused_by(self, round: Round) -> ExpectedRound:
        """The tokens and seconds of a finished round: with what it takes back, without what it paid for others."""
        gain = ExpectedRound.of(round)
        if not self.cost_model.rollback:
            return gain
        own_s = max(0.0, gain.seconds - self._taking_s(TakenBack.paid_by(round)))
        return ExpectedRound(gain.tokens, own_s + self.rollback_s(TakenBack.of_round(round)))

    def see_target(self, round: Round) -> None:
        """Learn from the seconds of the target's side; without drafts, from all seconds of the round.

        A round that pays for a rejection tells the price of that, not the target's: plain rounds behind a rejection
        would look slow, and drafts cheap.
        """
        drafts = len(round.drafts)
        seconds = round.verify_s + round.other_s + (0.0 if drafts else round.draft_s)
        self.target.count_reread(round)
        priced_s = self.target.whole.value * self.cost_model.rollback_s(TakenBack.paid_by(round))
        if priced_s:
            self.target.paid.update(max(0.0, seconds - self.verify_s(drafts)), priced_s)
            return
        self.target.update(drafts, seconds, self.cost_model.verify_s(drafts) + self.cost_model.rest_s)

    def see_drafts(self, round: Round, steps: int) -> None:
        """Learn from the seconds of `steps` steps of drafting."""
        self.drafts.update(round.draft_s, self.cost_model.draft_s(steps))
