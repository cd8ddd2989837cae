"""Survival over cost: drafting continues while the expected tokens per second of the round rise."""

from collections.abc import Sequence

from egag.cost_model import CostModel
from egag.draft_distribution import DraftDistribution, Token
from egag.estimates.acceptance import Features, copied_features, features, stated_features
from egag.estimates.estimator_state import DraftFeatures, EstimatorState
from egag.expected_round import ExpectedRound, TruncatedProposal, best_length
from egag.length_rule import LengthRule
from egag.rollback_price import TakenBack
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation
from utils.events import Round

# Positions with a lower survival are not considered.
_REACHED = 0.02
# A draft with a lower survival is never profitable.
_OF_USE = 0.003


class SurvivalGamma(LengthRule, Truncation, TreeGrowth):
    """Compares S_i, the probability that draft i is reached and accepted, with the cost of i drafts (docs/algorithms).

    S_i = a_1 ... a_i with a_j from `AcceptanceEstimator`. E_i = 1 + S_1 + ... + S_i is the expected number of tokens
    with i drafts. T_i is their time by `OnlineCostModel`. The rule maximises E_i / T_i. A drafter that draws is asked
    draft by draft; a copy or a tree is cut before verification. If E_0 / T_0 is the maximum the round has no drafts.
    `ExplorationBudget` decides when to try the other way, with drafts or without: a round's seconds are known of what
    was played. Each read of a distribution waits for the device, once per draft.
    """

    _sure: float | None = None

    def __init__(
        self,
        survival_gamma_max: int = 16,
        survival_explore: float = 0.01,
        survival_live: bool = True,
        survival_remember: bool = True,
    ) -> None:
        self.longest, self.explore = survival_gamma_max, survival_explore
        self.live, self.remember = survival_live, survival_remember
        self.learnt = EstimatorState.fresh(self.cost_model, self.explore)
        self.begin()

    def use_cost_model(self, cost_model: CostModel) -> None:
        super().use_cost_model(cost_model)
        self.learnt.use_cost_model(cost_model)

    def begin(self) -> None:
        if not self.remember:
            self.learnt = EstimatorState.fresh(self.cost_model, self.explore)
        self.learnt.sure.begin()
        self.gamma, self._trying, self._drafted = self.longest, False, 0
        self._start()
        if self.learnt.rounds:
            self._decide()

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        if drafted == 0:
            self.start_tree(distribution)
            self.learnt.copies = distribution is None
        if drafted >= self.gamma or distribution is None:
            return drafted < self.gamma
        self._steps = drafted + 1
        sure = distribution.acceptance
        read = features(distribution.top, drafted) if sure is None else stated_features(sure, drafted)
        survival = self.survival[-1] * self.learnt.acceptance.chance(read)
        if not drafted:
            self._sure = survival
        # The forward of this distribution is paid for in any case.
        before = self.survival[1:]
        without = ExpectedRound(self._tokens, self._expected_s(before))
        with_it = ExpectedRound(self._tokens + survival, self._expected_s([*before, survival]))
        if not self._trying and with_it.rate <= without.rate:
            return False
        self._tokens += survival
        self.survival.append(survival)
        self._drafts.add(read, drafted - 1)
        return True

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        if drafted >= self.gamma or distribution is None:
            return drafted < self.gamma
        return not self._trying and self._promising(drafted)

    @property
    def truncation(self) -> Truncation:
        return self

    @property
    def tree_growth(self) -> TreeGrowth:
        return self

    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        self._start()
        self._steps = steps if self.gamma else 0
        return self.gamma > 0

    def acceptance(self, chance: float, depth: int) -> float:
        return self.learnt.acceptance.chance(self._features(chance, depth))

    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        if level >= self.gamma or self._trying:
            return False
        live = self.learnt.live
        _, expected = best_length(sorted(chances, reverse=True), live.after(self._steps))
        survival = min(1.0, sum(layer)) * self.learnt.acceptance.typical(level)
        step_s = live.draft_s(level + 1) - live.draft_s(level) + live.verify_s(1) - live.verify_s(0)
        if (expected.tokens + survival) / (expected.seconds + step_s) <= expected.rate:
            return False
        self._steps = level + 1
        return True

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        kept = self.evaluate(chances, match, parents)
        if kept.count or not kept.survival:
            return kept.count
        tried = self.single(kept.survival[0])
        count = int(self._trying or self.learnt.budget.tries(tried, kept.expected.rate))
        self.assign_rows(range(count))
        return count

    def evaluate(
        self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None
    ) -> TruncatedProposal:
        if not chances:
            return TruncatedProposal(0, self.learnt.live.without_drafts(), ())
        self._read(chances if parents is not None else chances[: self.longest], match, parents)
        live = self.learnt.live
        rolls_back = live.rolls_back if parents is None else None
        count, expected = best_length(self.survival[1:], live.after(self._steps), rollback_s=rolls_back)
        self.assign_rows(range(count))
        return TruncatedProposal(count, expected, tuple(self.survival[1:]))

    def assign_rows(self, rows: Sequence[int]) -> None:
        self._drafts.place = tuple(rows)

    def expected(self) -> ExpectedRound:
        """The expected round with drafts, before drafting."""
        return self.learnt.expected()

    def update(self, round: Round) -> None:
        if self.live:
            self.learnt.live.see_target(round)
        else:
            round = self.learnt.live.priced(round)
        if self._steps or round.drafts:
            self.learn(round)
        self.learnt.passed(round)
        self._drafted = self._drafted + 1 if self.gamma else 0
        self._decide()

    def learn(self, round: Round, timed: bool = True) -> None:
        """Learn from the verdict on its own drafts, and from their time.

        timed: False if another drafter took most of the time.
        """
        if self.live and timed:
            self.learnt.live.see_drafts(round, self._steps)
        if self._sure is not None:
            self.learnt.sure.add(self._sure)
        self.learnt.judged(round, self._drafts, self._steps)
        self._start()

    def adopt(self, earlier: LengthRule) -> None:
        if isinstance(earlier, SurvivalGamma) and self.remember and earlier.learnt.rounds:
            self.learnt = earlier.learnt
            self.learnt.budget.share = self.explore
            if self.cost_model.measured:
                self.learnt.use_cost_model(self.cost_model)
            if not self.live:
                self.learnt.forget_times()

    def memory(self) -> str:
        return self.learnt.described() if self.remember and self.learnt.rounds else ""

    def _start(self) -> None:
        """Reset the state of the round. survival: of the text, then of each draft."""
        self._steps, self._tokens, self._drafts = 0, 1.0, DraftFeatures()
        self._sure = None
        self.survival: list[float] = [1.0]

    def _read(self, chances: Sequence[float], match: int, parents: Sequence[int] | None) -> None:
        """Set features and survival of the drafts of a proposal that was not drawn, until survival is negligible."""
        acceptance, survival, depth = self.learnt.acceptance, [1.0], [0]
        scored = match > 0 and parents is None and chances[0] < 1.0
        rows, above = list[Features](), range(-1, len(chances) - 1) if parents is None else parents
        for chance, parent in zip(chances, above, strict=True):
            deep = depth[parent + 1]
            share = chance if parent < 0 else chance / max(chances[parent], 1e-9)
            rows.append(copied_features(share, match, deep) if scored else self._features(share, deep, match))
            survival.append(survival[parent + 1] * acceptance.chance(rows[-1]))
            depth.append(deep + 1)
            if survival[-1] < _OF_USE:
                break
        self._drafts, self.survival = DraftFeatures(rows, list(above[: len(rows)])), survival
        self._sure = survival[1]
        self._steps = max(1, self._steps)

    def _features(self, share: float, depth: int, match: int = 0) -> Features:
        """The features of a draft that was not drawn.

        For probability 1 the acceptance rate of its position replaces it.
        """
        return features(share if share < 1.0 else self.learnt.acceptance.typical(depth), depth, match)

    def seconds(self, drafts: int) -> float:
        return self.learnt.live.seconds(drafts, self._steps)

    def single(self, survival: float) -> ExpectedRound:
        """The expected round of one draft with this probability."""
        return ExpectedRound(1.0 + survival, self._expected_s([survival]))

    def _expected_s(self, survival: Sequence[float]) -> float:
        """Seconds of a round with a chain of drafts, taking back what is rejected included."""
        return self.seconds(len(survival)) + self._taking_s(survival)

    def _taking_s(self, survival: Sequence[float]) -> float:
        """Seconds of taking back what is rejected of a chain of drafts."""
        rolls_back = self.learnt.live.rolls_back
        return 0.0 if rolls_back is None else rolls_back(TakenBack.of_chain(survival))

    def _promising(self, drafted: int) -> bool:
        """Whether further drafts can raise the expected tokens per second."""
        seconds, typical = self.learnt.live.seconds, self.learnt.acceptance.typical
        tokens, chain = self._tokens, self.survival[1:]
        rate = tokens / (seconds(drafted) + self._taking_s(chain))
        for position in range(drafted, self.gamma):
            chain.append((chain[-1] if chain else 1.0) * typical(position))
            tokens += chain[-1]
            if tokens / (seconds(position + 1) + self._taking_s(chain)) > rate:
                return True
            if chain[-1] < _REACHED:
                break
        return False

    def _decide(self) -> None:
        """Decide whether to draft in the next round. A copy costs nothing until verification, and is cut then."""
        if self.learnt.copies:
            self.gamma, self._trying = self.longest, False
            return
        drafting, plain = self.expected(), self.learnt.live.without_drafts()
        pays, budget = drafting.rate > plain.rate, self.learnt.budget
        self._trying = not pays and budget.tries(drafting, plain.rate)
        unknown = self._drafted > self.learnt.live.target.rounds(0)  # the more was seen, the longer between two trials
        resting = pays and unknown and self.live and budget.tries(plain, drafting.rate)
        self.gamma = int(self._trying) if resting or not pays else self.longest
