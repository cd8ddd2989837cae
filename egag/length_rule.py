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
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation
from utils.events import Round
from utils.parameter import drafts

_KEEP_ALL = Truncation()
_GAMMA = drafts("gamma", None, "", minimum=0)


class LengthRule:
    """How many tokens to draft this round.

    `gamma` is this round's limit: the rule sets it in `begin`, `update`, or in `before` when
    `drafted == 0`, where the distribution of the first draft is at hand.
    """

    gamma: int
    cost_model: CostModel = ASSUMED_COSTS

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
