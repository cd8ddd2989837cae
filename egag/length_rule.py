"""The contract of a draft-length rule, and the simplest rule: a fixed gamma.

A rule may stop before a token is drawn, or after a token, which is then kept. No rule drops a drawn token: that would
bias the output's distribution. Rules read only the draft side of the current round. `update` gives them the verdict and
the times of the last round.
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
    """Decides how many tokens to draft in each round.

    `gamma` is the limit of the round. The rule sets it in `begin`, in `update`, or in `before` with `drafted == 0`,
    when the distribution of the first draft is known.
    """

    gamma: int
    cost_model: CostModel = ASSUMED_COSTS

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The rule with the given parameters; it needs no model."""
        return cls(**values)

    def use_cost_model(self, cost_model: CostModel) -> None:
        """Receive the cost of a round, if measured: before the first round, and again as the text grows."""
        self.cost_model = cost_model

    def begin(self) -> None:
        """Reset all state of earlier prompts."""

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
        """Decides which drafts of a finished proposal are verified; all by default."""
        return _KEEP_ALL

    @property
    def tree_growth(self) -> TreeGrowth:
        """Decides how far trees are grown; to this rule's gamma by default."""
        return GrowToGamma(self)

    def update(self, round: Round) -> None:
        """Learn from a verified round and its seconds.

        The time of this call counts as drafting time of the next round.
        """

    def adopt(self, earlier: "LengthRule") -> None:
        """Continue with the memory of earlier prompts of `earlier`, a rule of the same class."""

    def memory(self) -> str:
        """A description of the memory of earlier prompts; empty without a memory."""
        return ""


@dataclass(frozen=True, slots=True)
class GrowToGamma(TreeGrowth):
    """Grows trees to the depth of the rule's gamma, whatever their probabilities."""

    rule: LengthRule

    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        return self.rule.before(0, distribution)

    def acceptance(self, chance: float, depth: int) -> float:
        return chance

    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        return level < self.rule.gamma


class FixedGamma(LengthRule):
    """The same gamma in every round; 0 is plain autoregression. Raises `UserError` for a negative gamma."""

    def __init__(self, gamma: int = 4) -> None:
        self.gamma = _GAMMA.checked(gamma)


class DraftBudget(LengthRule):
    """The same budget in every round, for copying drafters: their drafts cost nothing, so the budget may be large."""

    def __init__(self, num_speculative_tokens: int = 10) -> None:
        self.gamma = num_speculative_tokens
