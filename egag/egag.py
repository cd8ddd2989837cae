"""EGAG: entropy-adaptive gamma. A drafter with low entropy on its first draft drafts longer."""

import math

from egag.draft_distribution import DraftDistribution
from egag.length_rule import LengthRule


class EntropyGamma(LengthRule):
    """gamma = floor((1 - H / ln V) * gamma_max), clamped to [gamma_min, gamma_max], smoothed by an EMA.

    H is the entropy (nats) of the drafter's raw distribution for the first draft of the round. The drafter computes
    this distribution anyway, so the rule costs no forward of its own. With `ema` beta > 0 the smoothed value s = beta *
    s + (1 - beta) * gamma is rounded half up; the first round starts s. A drafter without a distribution (n-grams)
    drafts `gamma_max`.

    Example with gamma_max 6, beta 0: H / ln V = 0.45 gives floor(0.55 * 6) = 3.
    """

    def __init__(self, egag_gamma_min: int = 1, egag_gamma_max: int = 6, egag_ema: float = 0.9) -> None:
        self.gamma_min, self.gamma_max, self.beta = egag_gamma_min, egag_gamma_max, egag_ema
        self.begin()

    def begin(self) -> None:
        self.gamma = self.gamma_max
        self._smoothed: float | None = None

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        if drafted == 0 and distribution is not None:
            self.gamma = self._choose(distribution.entropy / math.log(max(2, distribution.size)))
        return drafted < self.gamma

    def _choose(self, normalised_entropy: float) -> int:
        raw = self._clamp(math.floor((1.0 - normalised_entropy) * self.gamma_max))
        previous = raw if self._smoothed is None else self._smoothed
        self._smoothed = self.beta * previous + (1.0 - self.beta) * raw
        return self._clamp(math.floor(self._smoothed + 0.5))

    def _clamp(self, gamma: int) -> int:
        return max(self.gamma_min, min(self.gamma_max, gamma))
