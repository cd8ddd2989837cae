"""AdaEDL (arXiv 2410.18351): stops if an entropy-based bound on the next draft's acceptance is too low."""

import math

from egag.draft_distribution import DraftDistribution
from egag.length_rule import LengthRule
from egag.stopping.threshold import AdaptiveThreshold
from utils.events import Round


class AdaEdlGamma(LengthRule):
    """Stops before a draft with 1 - sqrt(k H) < t; H is the entropy (nats) of its distribution.

    It drafts at least one token. t follows the acceptance rate of the drafts (`AdaptiveThreshold`); a fully accepted
    round does not lower it. The forward for the distribution is paid for even if the rule stops. The entropy is read on
    the CPU, which costs one wait per draft on a GPU. A drafter without a distribution drafts to the limit.

    Example with k 0.2, t 0.7: H 0.45 gives 1 - 0.3 = 0.7 and drafts, H 0.8 gives 1 - 0.4 = 0.6 and stops.
    """

    def __init__(self, adaedl_k: float = 0.2, adaedl_threshold: float = 0.7, adaedl_gamma_max: int = 8) -> None:
        self.k, self.first, self.gamma = adaedl_k, adaedl_threshold, adaedl_gamma_max
        self.begin()

    def begin(self) -> None:
        self.threshold = AdaptiveThreshold(self.first)

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        if drafted >= self.gamma:
            return False
        return (
            drafted == 0 or distribution is None or 1 - math.sqrt(self.k * distribution.entropy) >= self.threshold.value
        )

    def update(self, round: Round) -> None:
        if round.drafts:
            self.threshold.learn(round.accepted / round.depth, hold=round.accepted == round.depth)
