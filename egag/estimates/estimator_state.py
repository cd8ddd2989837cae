"""The state of a rule for one drafter: estimates of acceptance, cost, and tokens per round."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from egag.cost_model import CostModel
from egag.estimates.acceptance import AcceptanceEstimator, Features
from egag.estimates.online_cost_model import OnlineCostModel
from egag.expected_round import ExpectedRound, ExplorationBudget, best_length, expected_tokens
from egag.rollback_price import NOTHING_TAKEN, TakenBack
from utils.events import Round

_FORGETTING = 0.98
# The weight of a first guess and of an earlier measurement, in rounds.
_GUESS, _MEASURED = 3.0, 8.0
# The decay per round of this text's average, and the weight of the usual average in rounds.
_HERE, _ALIKE = 0.9, 2.0
# The number of drafts that a guess considers.
_FAR = 16


@dataclass(slots=True)
class RoundAverages:
    """Decayed totals over the rounds of a drafter.

    They are tokens emitted, drafts verified, steps of drafting, rejections, and tokens to be read again.
    """

    tokens: float = 0.0
    drafts: float = 0.0
    steps: float = 0.0
    rejections: float = 0.0
    reread: float = 0.0
    weight: float = 0.0

    def add(
        self, tokens: float, drafts: float, steps: float, taken: TakenBack = NOTHING_TAKEN, weight: float = 1.0
    ) -> None:
        """Record one round, or `weight` rounds."""
        keep = _FORGETTING
        self.rejections = keep * self.rejections + weight * taken.rejections
        self.reread = keep * self.reread + weight * taken.reread
        self.tokens = keep * self.tokens + weight * tokens
        self.drafts = keep * self.drafts + weight * drafts
        self.steps = keep * self.steps + weight * steps
        self.weight = keep * self.weight + weight

    @property
    def taken(self) -> TakenBack:
        """What a round takes back on average."""
        return TakenBack(self.rejections / self.weight, self.reread / self.weight)


@dataclass(slots=True)
class ConfidenceAverages:
    """The drafter's mean confidence in its first draft on this text, relative to its usual one.

    Acceptance on a text needs many rounds to measure, confidence a few. On texts unlike its training data the drafter's
    confidence is low from the start.

    Example: usually .4, on this text .2 over many rounds -> share near 1/2.
    """

    usual: float = 0.0
    rounds: float = 0.0
    here: float = 0.0
    lately: float = 0.0

    def add(self, chance: float) -> None:
        """Record one round."""
        self.usual, self.rounds = _FORGETTING * self.usual + chance, _FORGETTING * self.rounds + 1.0
        self.here, self.lately = _HERE * self.here + chance, _HERE * self.lately + 1.0

    def begin(self) -> None:
        """Start another text, without rounds so far."""
        self.here = self.lately = 0.0

    @property
    def share(self) -> float:
        """The mean confidence on this text over the usual one."""
        if not self.usual:
            return 1.0
        usual = self.usual / self.rounds
        return (self.here + _ALIKE * usual) / (self.lately + _ALIKE) / usual


@dataclass(slots=True)
class DraftFeatures:
    """The features of each draft of a round, and its parent's row (-1 = the text). place: its row in the proposal."""

    rows: list[Features] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    place: tuple[int, ...] = ()

    def add(self, read: Features, parent: int) -> None:
        """Add one draft, in order."""
        self.place = (*self.place, len(self.rows))
        self.rows.append(read)
        self.parents.append(parent)

    def verdicts(self, round: Round) -> Iterator[tuple[Features, int, bool]]:
        """(features, depth from 0, accepted) of each judged draft: a draft whose parent was accepted.

        Drafts after an accepted stop token were not judged.
        """
        path, depth = set(round.path), {-1: 0}
        for row, (read, parent, place) in enumerate(zip(self.rows, self.parents, self.place, strict=False)):
            above = depth.get(parent)
            accepted = place in path
            if above is None or (above == len(path) and round.next_token is None):
                continue
            if accepted:
                depth[row] = above + 1
            yield read, above, accepted


@dataclass(slots=True)
class EstimatorState:
    """All estimates for one drafter.

    copies: whether its drafts are copies, which cost nothing until verification. unused: the rounds since it drafted,
    for one of several drafters.
    """

    live: OnlineCostModel
    acceptance: AcceptanceEstimator
    budget: ExplorationBudget
    mean: RoundAverages = field(default_factory=RoundAverages)
    sure: ConfidenceAverages = field(default_factory=ConfidenceAverages)
    copies: bool = False
    rounds: int = 0
    unused: int = 0

    @classmethod
    def fresh(cls, cost_model: CostModel, explore: float) -> "EstimatorState":
        """A state that holds measured costs only."""
        return cls(
            OnlineCostModel.of(cost_model), AcceptanceEstimator(cost_model.acceptance), ExplorationBudget(explore)
        )

    def use_cost_model(self, cost_model: CostModel) -> None:
        """See `OnlineCostModel.on`; before the first round it also takes the measured acceptance rates."""
        self.live = self.live.on(cost_model, bool(self.rounds))
        if not self.rounds:
            self.acceptance, self.mean = AcceptanceEstimator(cost_model.acceptance), RoundAverages()

    def forget_times(self) -> None:
        """Use the cost model unchanged, and drop the corrections from past rounds."""
        self.live = OnlineCostModel.of(self.live.cost_model)

    def expected(self) -> ExpectedRound:
        """The expected round with drafts, from past rounds and the drafter's confidence on this text.

        Before the first round it is estimated from the acceptance rate of each position.
        """
        self._guess()
        mean = self.mean
        tokens, drafts, steps = (total / mean.weight for total in (mean.tokens, mean.drafts, mean.steps))
        seconds = self.live.seconds(drafts, steps) + self.live.rollback_s(mean.taken)
        return ExpectedRound(1.0 + (tokens - 1.0) * self.sure.share, seconds)

    def _guess(self) -> None:
        """Set the averages to those of the best length by the acceptance rates of the positions."""
        if self.mean.weight:
            return
        survival = list(accumulate((self.acceptance.typical(position) for position in range(_FAR)), mul))
        count = max(1, best_length(survival, self.live.seconds, rollback_s=self.live.rolls_back)[0])
        trust = _MEASURED if self.acceptance.shares else _GUESS
        kept = survival[:count]
        self.mean.add(expected_tokens(kept), count, count, TakenBack.of_chain(kept), trust)

    def judged(self, round: Round, drafts: DraftFeatures, steps: int) -> None:
        """Learn from the verdict on its drafts in a round with `steps` steps of drafting."""
        self._guess()
        reached = 0
        tested = dict[int, bool]()
        for read, depth, accepted in drafts.verdicts(round):
            self.acceptance.add(read, accepted)
            tested[depth] = tested.get(depth, False) or accepted
            reached = max(reached, depth + accepted)
        for position, accepted in tested.items():
            self.acceptance.count(position, accepted)
        self.acceptance.refresh()
        known = len(drafts.rows) > 0 or "+" in round.source  # two drafters of one round each know their own drafts
        kept, count = (reached, len(drafts.place)) if known else (round.accepted, len(round.drafts))
        taken = TakenBack(1.0, 1.0 + kept) if kept < count else NOTHING_TAKEN
        self.mean.add(1.0 + kept, count, steps, taken)
        self.rounds, self.unused = self.rounds + 1, 0

    def passed(self, round: Round) -> None:
        """Count a finished round, with or without its drafts."""
        self.budget.passed(self.live.caused_by(round))
        self.rounds += 1

    def described(self) -> str:
        """The averages of its rounds in words."""
        return f"{self.mean.tokens / self.mean.weight:.2f} tokens a round with drafts"
