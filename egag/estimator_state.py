"""What a rule has learnt of one drafter: acceptance, cost, and what rounds brought."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from egag.acceptance import AcceptanceEstimator, Features
from egag.cost_model import CostModel
from egag.expected_round import ExpectedRound, ExplorationBudget, best_length, expected_tokens
from egag.online_cost_model import OnlineCostModel
from utils.events import Round

_FORGETTING = 0.98
# Rounds that a first guess is worth, and what was measured before.
_GUESS, _MEASURED = 3.0, 16.0
# How much of a round on this text stays from round to round, and rounds that what is usual is worth.
_HERE, _ALIKE = 0.9, 2.0
# Drafts that a guess looks ahead.
_FAR = 16


@dataclass(slots=True)
class RoundAverages:
    """Decayed totals over the rounds of a drafter: tokens emitted, drafts verified, steps of drafting."""

    tokens: float = 0.0
    drafts: float = 0.0
    steps: float = 0.0
    weight: float = 0.0

    def add(self, tokens: float, drafts: float, steps: float, weight: float = 1.0) -> None:
        """One round, or as many as `weight` says."""
        keep = _FORGETTING
        self.tokens = keep * self.tokens + weight * tokens
        self.drafts = keep * self.drafts + weight * drafts
        self.steps = keep * self.steps + weight * steps
        self.weight = keep * self.weight + weight


@dataclass(slots=True)
class ConfidenceAverages:
    """How sure a drafter is of its first draft on this text, against what it usually is.

    What it brings on a text is known only after many rounds; how sure it is, after a few: on texts of another kind than
    those that it was trained on it says itself that it is not.

    Example: usually .4, on this text .2 over many rounds -> share near 1/2.
    """

    usual: float = 0.0
    rounds: float = 0.0
    here: float = 0.0
    lately: float = 0.0

    def add(self, chance: float) -> None:
        """One round."""
        self.usual, self.rounds = _FORGETTING * self.usual + chance, _FORGETTING * self.rounds + 1.0
        self.here, self.lately = _HERE * self.here + chance, _HERE * self.lately + 1.0

    def begin(self) -> None:
        """Another text, of which nothing is known."""
        self.here = self.lately = 0.0

    @property
    def share(self) -> float:
        """What it says here over what it usually says."""
        if not self.usual:
            return 1.0
        usual = self.usual / self.rounds
        return (self.here + _ALIKE * usual) / (self.lately + _ALIKE) / usual


@dataclass(slots=True)
class DraftFeatures:
    """What was read of each draft of a round, and its parent's row (-1 = the text). place: its row in the proposal."""

    rows: list[Features] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    place: tuple[int, ...] = ()

    def add(self, read: Features, parent: int) -> None:
        """One draft more, which stands where it is in order."""
        self.place = (*self.place, len(self.rows))
        self.rows.append(read)
        self.parents.append(parent)

    def verdicts(self, round: Round) -> Iterator[tuple[Features, int, bool]]:
        """(what was read, depth from 0, accepted) of each draft that was judged: those behind what was accepted.

        What stands behind an accepted stop token was not judged.
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
    """All of it. copies: its drafts follow from the text, and cost nothing until they are verified.

    unused: rounds since it drafted, of one of several that take turns.
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
        """Nothing but what was measured."""
        return cls(
            OnlineCostModel.of(cost_model), AcceptanceEstimator(cost_model.acceptance), ExplorationBudget(explore)
        )

    def use_cost_model(self, cost_model: CostModel) -> None:
        """See `OnlineCostModel.on`; before the first round, what was measured beside it as well."""
        self.live = self.live.on(cost_model, bool(self.rounds))
        if not self.rounds:
            self.acceptance, self.mean = AcceptanceEstimator(cost_model.acceptance), RoundAverages()

    def forget_times(self) -> None:
        """Take the cost model as it is, and what rounds took for nothing."""
        self.live = OnlineCostModel.of(self.live.cost_model)

    def expected(self) -> ExpectedRound:
        """A round with drafts, by what those before brought and how sure the drafter is of this text.

        Before the first round by the shares of each position.
        """
        self._guess()
        mean = self.mean
        tokens, drafts, steps = (total / mean.weight for total in (mean.tokens, mean.drafts, mean.steps))
        return ExpectedRound(1.0 + (tokens - 1.0) * self.sure.share, self.live.seconds(drafts, steps))

    def _guess(self) -> None:
        """What rounds would bring if they drafted as many as pay by the shares of each position."""
        if self.mean.weight:
            return
        survival = list(accumulate((self.acceptance.typical(position) for position in range(_FAR)), mul))
        count = max(1, best_length(survival, self.live.seconds)[0])
        trust = _MEASURED if self.acceptance.shares else _GUESS
        self.mean.add(expected_tokens(survival[:count]), count, count, trust)

    def judged(self, round: Round, drafts: DraftFeatures, steps: int) -> None:
        """Learn from the verdict on its drafts in a round, which took so many steps of drafting."""
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
        known = len(drafts.rows) > 0 or "+" in round.source  # of two together, each knows its own drafts
        self.mean.add(1.0 + (reached if known else round.accepted), len(drafts.place if known else round.drafts), steps)
        self.rounds, self.unused = self.rounds + 1, 0

    def passed(self, round: Round) -> None:
        """A round is over, whether it drafted or not."""
        self.budget.passed(ExpectedRound.of(round))
        self.rounds += 1

    def described(self) -> str:
        """What its rounds brought, in words."""
        return f"{self.mean.tokens / self.mean.weight:.2f} tokens a round with drafts"
