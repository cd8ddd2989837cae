"""The length with the most expected tokens per second, from past acceptance and the costs of a round (2211.17192)."""

import math

from egag.cost_model import CostModel
from egag.length_rule import LengthRule
from egag.rollback_price import TakenBack
from utils.events import Round

# The initial acceptance rate, and its weight in judged drafts.
_ACCEPTANCE, _WEIGHT = 0.7, 4


class CostRatioGamma(LengthRule):
    """g = argmax over 0..gamma_max of (1 + a + ... + a^g) / (v(g) + d(g) + b(g)), all costs in forwards over one row.

    a: accepted / judged drafts. Earlier rounds lose weight by the factor `decay` with each round that drafts. v(g): the
    target's forward over g drafts. d(g): the cost of g drafts, which is g c if the first costs as much as the others.
    b(g): taking rejected drafts back (`RollbackPrice`), 0 where that is free.

    A round with 0 drafts shows nothing about acceptance. While g is 0, a probe round with one draft therefore runs from
    time to time. If every probe is rejected, probes cost the share `probe` of the time: their distance is (v(1) + d(1)
    + b(1) - 1) / probe rounds. probe 0 = never.

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
        best = max(range(self.most + 1), key=lambda gamma: tokens[gamma] / self._cost(gamma, alpha))
        return 1 if best == 0 and self._idle and self._idle >= self._apart() else best

    def _cost(self, gamma: int, alpha: float) -> float:
        costs = self.cost_model
        drafts_s = costs.draft_s(gamma) + costs.rollback_s(TakenBack.of_rate(alpha, gamma))
        return costs.v(gamma) + drafts_s / costs.verify_s(0)

    def _apart(self) -> float:
        """The number of rounds without drafts between two probes."""
        return max(0.0, self._cost(1, 0.0) - 1) / self.probe if self.probe else math.inf
