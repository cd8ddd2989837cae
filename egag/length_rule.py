"""The contract of a draft-length rule, and the simplest rule: a fixed gamma.

A rule may stop before a token is drawn or after one, which is then kept. No rule drops a token already
drawn: that would bias the output's distribution. Rules read only the draft side of the current round; `update`
tells them the verdict and the times of the round before the next one starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.draft_distribution import DraftDistribution, Token
from egag.expected_round import ExpectedRound, TruncatedProposal, expected_tokens
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation
from utils.events import Round
from utils.parameter import integer

# How often a draft is accepted, for a rule that does not learn it.
_USUAL = 0.7

_KEEP_ALL = Truncation()
_GAMMA = integer("gamma", None, "", minimum=0)


class LengthRule:
    """How many tokens to draft this round.

    `gamma` is this round's limit: the rule sets it in `begin`, `update`, or in `before` when
    `drafted == 0`, where the distribution of the first draft is at hand. `survival`: the chances that the text, which
    is 1, and each draft of the round is reached and accepted, as far as the rule weighs them.
    """

    gamma: int
    cost_model: CostModel = ASSUMED_COSTS
    survival: Sequence[float] = (1.0,)

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The rule with the given parameters; it needs no model."""
        return cls(**values)

    def use_cost_model(self, cost_model: CostModel) -> None:
        """What a round costs here; told before the first round and again as the text grows, where it was measured."""
        self.cost_model = cost_model

    def begin(self) -> None:
        """Forget everything about earlier prompts."""

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        """Whether to draw one more draft, given the drafter's distribution of it.

        `distribution` is None for a drafter that has none (n-grams).
        """
        return drafted < self.gamma

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        """Whether to go on after the draft `token` (0-d) was drawn from this `distribution`; it is kept anyway.

        Asked before the drafter pays for its next forward; `drafted` counts this token.
        """
        return drafted < self.gamma

    @property
    def truncation(self) -> Truncation:
        """Which drafts of a finished proposal are verified: all, but for a rule that says otherwise."""
        return _KEEP_ALL

    @property
    def tree_growth(self) -> TreeGrowth:
        """How far trees are grown: to this rule's gamma, but for a rule that says otherwise."""
        return GrowToGamma(self)

    def weigh(
        self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None
    ) -> TruncatedProposal:
        """What is kept, and what that is expected to bring."""
        count = self.truncation.truncate(chances, match, parents)
        return TruncatedProposal(
            count, ExpectedRound(expected_tokens(chances[:count]), self.cost_model.seconds(count)), tuple(chances)
        )

    def seconds(self, drafts: int) -> float:
        """What the round takes with so many drafts verified, after what was drafted so far."""
        return self.cost_model.seconds(drafts)

    def of(self, name: str) -> "LengthRule":
        """The rule for one of several drafters that take turns: itself, where it treats all alike."""
        return self

    def promise(self) -> ExpectedRound:
        """What a round with drafts is expected to bring before anything is drafted."""
        return ExpectedRound(
            1.0 + sum(_USUAL ** (draft + 1) for draft in range(self.gamma)), self.cost_model.seconds(self.gamma)
        )

    def choose(self, promises: Mapping[str, ExpectedRound]) -> str:
        """Whose drafts to take of several drafters: the most tokens over seconds, the first of equals."""
        return max(promises, key=lambda name: promises[name].rate)

    def update(self, round: Round) -> None:
        """Learn from a judged round and the seconds it took; what that costs counts as drafting of the next one."""

    def adopt(self, earlier: "LengthRule") -> None:
        """Go on with what `earlier`, of the same kind, remembers of earlier prompts."""

    def memory(self) -> str:
        """What is kept of earlier prompts, in words; empty where nothing is."""
        return ""


@dataclass(frozen=True, slots=True)
class GrowToGamma(TreeGrowth):
    """Trees are as deep as the rule's gamma, whatever their chances."""

    rule: LengthRule

    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        return self.rule.before(0, distribution)

    def acceptance(self, chance: float, depth: int) -> float:
        return chance

    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        return level < self.rule.gamma


class FixedGamma(LengthRule):
    """The same gamma in every round; 0 is plain autoregression. Raises `UserError` for one below 0."""

    def __init__(self, gamma: int = 4) -> None:
        self.gamma = _GAMMA.checked(gamma)


class DraftBudget(LengthRule):
    """The same budget in every round, for drafters that copy: drafts that cost nothing may be many."""

    def __init__(self, num_speculative_tokens: int = 10) -> None:
        self.gamma = num_speculative_tokens
