"""Draft & Verify's rule (Zhang et al. 2023, arXiv 2309.08168): an adaptive threshold of confidence."""

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule
from egag.threshold import AdaptiveThreshold
from utils.events import Round


class DraftVerifyGamma(LengthRule):
    """Stop after a draft whose distribution gives its most likely token less than t; the draft is kept.

    t follows the share of drafts that are accepted (`AdaptiveThreshold`) and is held by a round that drafted to the
    limit. It begins at 0.8, where the paper samples at 0.5. The source's sampling reads the drawn token's probability;
    under greedy that is the top one. The probability is read on the CPU: a wait a draft on a GPU. A drafter without a
    distribution drafts to the limit.

    Example: t 0.8, top 0.9 goes on, top 0.7 stops.
    """

    def __init__(self, draft_verify_threshold: float = 0.8, draft_verify_gamma_max: int = 8) -> None:
        self.first, self.gamma = draft_verify_threshold, draft_verify_gamma_max
        self.begin()

    def begin(self) -> None:
        self.threshold = AdaptiveThreshold(self.first)

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        return drafted < self.gamma and (distribution is None or distribution.top >= self.threshold.value)

    def update(self, round: Round) -> None:
        if round.drafts:
            self.threshold.learn(round.accepted / round.depth, hold=round.depth >= self.gamma)
