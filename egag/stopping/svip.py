"""SVIP (arXiv 2411.18462): stops after a draft from a distribution of high entropy."""

import math

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule

_SCALE = 0.15


class SvipGamma(LengthRule):
    """Stops after a draft with sqrt(0.15 H) > h, H the entropy (nats) of its distribution; the draft is kept.

    The root bounds the distance between drafter and target. The entropy is read on the CPU, which costs one wait per
    draft on a GPU. A drafter without a distribution drafts to the limit.

    Example with h 0.3: H 0.5 gives 0.274 and goes on, H 0.7 gives 0.324 and stops.
    """

    def __init__(self, svip_threshold: float = 0.3, svip_gamma_max: int = 40) -> None:
        self.threshold, self.gamma = svip_threshold, svip_gamma_max

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        return drafted < self.gamma and (
            distribution is None or math.sqrt(_SCALE * distribution.entropy) <= self.threshold
        )
