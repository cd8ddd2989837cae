"""UCB1 over draft-length rules (BanditSpec, arXiv 2505.15141): a bandit chooses the rule of each round."""

from collections.abc import Mapping
from typing import Any, Self

from egag.bandits.bandit import Bandit
from egag.cost_model import CostModel
from egag.delegating import DelegatingRule
from egag.length_rule import LengthRule
from utils.events import Round


class UcbRules(DelegatingRule):
    """Uses the rule that `Bandit` chooses; the choice is made before the round begins.

    A rule learns only from rounds that it decided, because its drafts in other rounds are unknown. With `remember` the
    estimates continue on the next prompt, and so does the memory of the rules.

    Example with s 0: fixed gave 20 tokens per second and svip 25 -> svip decides.
    """

    def __init__(self, rules: Mapping[str, LengthRule], exploration: float = 0.2, remember: bool = True) -> None:
        self.rules, self.exploration, self.remember = rules, exploration, remember
        self._bandit = Bandit(rules, exploration)
        self.playing = self._bandit.choose()

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any], *inside: LengthRule) -> Self:
        rules = dict(zip(values["ucb_arms"].split(), inside, strict=True))
        return cls(rules, values["ucb_exploration"], values["ucb_remember"])

    @property
    def rule(self) -> LengthRule:
        return self.rules[self.playing]

    def use_cost_model(self, cost_model: CostModel) -> None:
        for rule in self.rules.values():
            rule.use_cost_model(cost_model)

    def begin(self) -> None:
        for rule in self.rules.values():
            rule.begin()
        if not self.remember:
            self._bandit = Bandit(self.rules, self.exploration)
        self.playing = self._bandit.choose()

    def update(self, round: Round) -> None:
        self.rule.update(round)
        self._bandit.pay(self.playing, round)
        self.playing = self._bandit.choose()

    def adopt(self, earlier: LengthRule) -> None:
        if not isinstance(earlier, UcbRules):
            return
        for name in self.rules.keys() & earlier.rules.keys():
            self.rules[name].adopt(earlier.rules[name])
        if self.remember and list(earlier.rules) == list(self.rules):
            self._bandit.arms = earlier._bandit.arms
            self.playing = self._bandit.choose()

    def memory(self) -> str:
        memory_text = self._bandit.told() if self.remember else ""
        return "; ".join(filter(None, [memory_text, *(rule.memory() for rule in self.rules.values())]))
