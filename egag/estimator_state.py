"""What a rule has learnt of one drafter, or of several that take turns: acceptance, cost, and what rounds brought."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from egag.acceptance import AcceptanceEstimator, Features
from egag.cost_model import ASSUMED_COSTS, CostModel
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

    parts: of the drafters that take turns, by name; they share the factor of the target's side. unused: rounds since it
    drafted.
    """

    live: OnlineCostModel
    acceptance: AcceptanceEstimator
    allowance: ExplorationBudget
    mean: RoundAverages = field(default_factory=RoundAverages)
    sure: ConfidenceAverages = field(default_factory=ConfidenceAverages)
    copies: bool = False
    rounds: int = 0
    unused: int = 0
    parts: dict[str, "EstimatorState"] = field(default_factory=dict)

    @classmethod
    def fresh(cls, cost_model: CostModel, explore: float) -> "EstimatorState":
        """Nothing but what was measured."""
        return cls(
            OnlineCostModel.of(cost_model), AcceptanceEstimator(cost_model.acceptance), ExplorationBudget(explore)
        )

    def part(self, name: str) -> "EstimatorState":
        """What is learnt of one of several drafters, which does not try on its own."""
        if name not in self.parts:
            self.parts[name] = EstimatorState(
                OnlineCostModel.of(ASSUMED_COSTS, self.live.target), AcceptanceEstimator(), ExplorationBudget(0.0)
            )
        return self.parts[name]

    def use_cost_model(self, cost_model: CostModel) -> None:
        """Another price, such as that of another context; by how much it is off, where that is known, stays."""
        guessed = cost_model.measured and not self.live.cost_model.measured
        if self.rounds:
            self.live.cost_model = cost_model
            if guessed:  # the factors were seconds over forwards
                self.live.measured()
            return
        target = self.live.target
        if guessed:
            target.measured()
        self.live, self.acceptance, self.mean = (
            OnlineCostModel.of(cost_model, target),
            AcceptanceEstimator(cost_model.acceptance),
            RoundAverages(),
        )

    def forget_times(self) -> None:
        """Take prices as they are, and what rounds took for nothing."""
        for one in (self, *self.parts.values()):
            one.live = OnlineCostModel.of(one.live.cost_model)

    def nothing(self) -> ExpectedRound:
        """A round without drafts."""
        return ExpectedRound(1.0, self.live.verify_s(0))

    def promise(self) -> ExpectedRound:
        """A round with drafts, by what those before brought and how sure the drafter is of this text.

        Before the first round by the shares of each position.
        """
        self._guess()
        mean = self.mean
        tokens, drafts, steps = (one / mean.weight for one in (mean.tokens, mean.drafts, mean.steps))
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

    def chosen(self, promises: Mapping[str, ExpectedRound]) -> str:
        """Who drafts: the best tokens over seconds, or whoever is to be tried.

        That is the one with the most rounds unused over the seconds that trying it loses: rounds between trials grow as
        the loss does.
        """
        best = max(promises, key=lambda name: promises[name].rate)
        rate = promises[best].rate
        others = [name for name in promises if name != best and name in self.parts]
        if others:
            other = max(others, key=lambda name: self.parts[name].unused / (promises[name].loss(rate) + 1e-9))
            if self.parts[other].unused and self.allowance.tries(promises[other], rate):
                return other
        return best

    def passed(self, round: Round) -> None:
        """A round is over, whoever drafted."""
        seconds = round.draft_s + round.verify_s + round.other_s
        self.allowance.passed(ExpectedRound(float(len(round.emitted)), seconds))
        self.rounds += 1
        for part in self.parts.values():
            part.unused += 1

    def told(self) -> str:
        """What is known, in words."""
        parts = self.parts or {"": self}
        return ", ".join(
            f"{name} {part.mean.tokens / part.mean.weight:.2f} tokens a round with drafts".strip()
            for name, part in parts.items()
            if part.rounds
        )
