"""Saturation pruning: stops where one more draft can add hardly a token."""

from collections.abc import Sequence

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation


class SaturationGamma(LengthRule, TreeGrowth, Truncation):
    """Stops after a draft whose path has a probability below a threshold; the draft is kept.

    The probability of a path is the product of the highest probabilities of its distributions. A further draft is
    accepted only behind all of them, so by the drafter's word it adds at most this product to the round's tokens. Trees
    grow while their best path is at the threshold or above. Copies end after the first draft below it. Nothing is
    learnt, and no token is looked at. A drafter without a distribution drafts to the limit.

    Example with t 0.2: 0.9, 0.6, 0.3 and 0.8 have the products 0.9, 0.54 and 0.162 -> three drafts.
    """

    def __init__(self, saturation_threshold: float = 0.2, saturation_gamma_max: int = 8) -> None:
        self.threshold, self.gamma = saturation_threshold, saturation_gamma_max
        self._path = 1.0

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        if drafted >= self.gamma or distribution is None:
            return drafted < self.gamma
        self._path = distribution.top * (1.0 if drafted == 1 else self._path)
        return self._path >= self.threshold

    @property
    def truncation(self) -> Truncation:
        return self

    @property
    def tree_growth(self) -> TreeGrowth:
        return self

    def start_tree(self, distribution: DraftDistribution | None, steps: int = 1) -> bool:
        return self.before(0, distribution)

    def acceptance(self, chance: float, depth: int) -> float:
        return chance

    def expand_layer(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        return level < self.gamma and max(layer, default=0.0) >= self.threshold

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        return next((count for count, chance in enumerate(chances, 1) if chance < self.threshold), len(chances))
