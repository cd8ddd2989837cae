"""GammaTune (arXiv 2504.00030): a larger gamma after full acceptance, otherwise an average of the accepted numbers."""

import math

from egag.length_rule import LengthRule
from utils.events import Round


class GammaTune(LengthRule):
    """If m = L: g + delta. Otherwise s = (1 - eta) s + eta m and g = ceil(s).

    Both lie in [1, gamma_max]; s starts at g. L is the number of drafts, m the number of accepted drafts. A round
    without drafts changes nothing.

    Example with g 3, eta 0.3, delta 2: 3 of 3 -> 5; 1 of 5 -> s 2.4, g 3; 0 of 3 -> s 1.68, g 2.
    """

    def __init__(
        self,
        gammatune_gamma: int = 3,
        gammatune_eta: float = 0.3,
        gammatune_delta: int = 2,
        gammatune_gamma_max: int = 10,
    ) -> None:
        self.start, self.most = gammatune_gamma, gammatune_gamma_max
        self.eta, self.delta = gammatune_eta, gammatune_delta
        self.begin()

    def begin(self) -> None:
        self.gamma, self._average = self.start, float(self.start)

    def update(self, round: Round) -> None:
        if not round.drafts:
            return
        if round.accepted == round.depth:
            self.gamma = min(self.most, self.gamma + self.delta)
            return
        self._average = (1 - self.eta) * self._average + self.eta * round.accepted
        self.gamma = max(1, min(self.most, math.ceil(self._average)))
