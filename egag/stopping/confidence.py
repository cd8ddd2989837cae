"""The confidence rule of transformers (`assistant_confidence_threshold`)."""

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule


class ConfidenceGamma(LengthRule):
    """Stops after a draft whose probability in the drafter's raw distribution is below a threshold.

    The last draft is kept, as in transformers. A drafter without a distribution drafts to the limit.
    """

    def __init__(self, confidence_threshold: float = 0.4, confidence_gamma_max: int = 20) -> None:
        self.threshold, self.gamma = confidence_threshold, confidence_gamma_max

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        if drafted >= self.gamma:
            return False
        return distribution is None or token is None or distribution.chance(token) >= self.threshold
