"""A rule that forwards to another rule: the base of rules that record or choose other rules."""

from abc import abstractmethod

from egag.cost_model import CostModel
from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation
from utils.events import Round


class DelegatingRule(LengthRule):
    """Forwards every call to `rule`, which may be another rule in each round."""

    @property
    @abstractmethod
    def rule(self) -> LengthRule:
        """The rule of this round."""

    @property
    def gamma(self) -> int:  # type: ignore[override]
        return self.rule.gamma

    def use_cost_model(self, cost_model: CostModel) -> None:
        self.rule.use_cost_model(cost_model)

    def begin(self) -> None:
        self.rule.begin()

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        return self.rule.before(drafted, distribution)

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        return self.rule.after(drafted, distribution, token)

    @property
    def truncation(self) -> Truncation:
        return self.rule.truncation

    @property
    def tree_growth(self) -> TreeGrowth:
        return self.rule.tree_growth

    def update(self, round: Round) -> None:
        self.rule.update(round)
