"""The length with the most expected tokens a second, from acceptance so far and what a round costs (2211.17192)."""

import math

from egag.cost_model import CostModel
from egag.length_rule import LengthRule
from utils.events import Round

# What acceptance is taken to be before anything was judged, and how many judged drafts that weighs.
_ACCEPTANCE, _WEIGHT = 0.7, 4


class CostRatioGamma(LengthRule):
    """g = argmax over 0..gamma_max of (1 + a + ... + a^g) / (v(g) + d(g)), all costs in forwards over one row.

    a: accepted / judged drafts, those of earlier rounds weighing `decay` less with each round that drafted. v(g): the
    target's forward over g drafts; d(g): drafting them, g c where the first costs what the others do.

    0 drafts teach nothing about drafts. So while g is 0, now and then a round drafts one: as seldom as makes its
    cost, were it always rejected, the share `probe` of the time, (v(1) + d(1) - 1) / probe rounds apart; 0 = never.

    Example with v 1, c 0.2: a 0.7 gives 1, 1.42, 1.56, 1.58 and 1.54 for 0 to 4 drafts -> 3.
    """

    def __init__(
        self, cost_ratio_gamma_max: int = 16, cost_ratio_decay: float = 0.95, cost_ratio_probe: float = 0.01
    ) -> None:
        self.most, self.decay, self.probe = cost_ratio_gamma_max, cost_ratio_decay, cost_ratio_probe
        self.begin()

    def begin(self) -> None:
        self._accepted, self._judged, self._idle = _WEIGHT * _ACCEPTANCE, float(_WEIGHT), 0
        self.gamma = self._choose()

    def use_cost_model(self, cost_model: CostModel) -> None:
        super().use_cost_model(cost_model)
        self.gamma = self._choose()

    def update(self, round: Round) -> None:
        if round.drafts:
            self._accepted = self.decay * self._accepted + round.accepted
            self._judged = self.decay * self._judged + round.tested
        self._idle = self._idle + 1 if round.gamma == 0 else 0
        self.gamma = self._choose()

    def _choose(self) -> int:
        alpha = self._accepted / self._judged
        tokens = [1.0]
        for _ in range(self.most):
            tokens.append(1 + alpha * tokens[-1])
        best = max(range(self.most + 1), key=lambda gamma: tokens[gamma] / self._cost(gamma))
        return 1 if best == 0 and self._idle and self._idle >= self._apart() else best

    def _cost(self, gamma: int) -> float:
        return self.cost_model.v(gamma) + self.cost_model.draft_s(gamma) / self.cost_model.verify_s(0)

    def _apart(self) -> float:
        """How many rounds without drafts stand between two probes."""
        return max(0.0, self._cost(1) - 1) / self.probe if self.probe else math.inf
