"""The rule of Draft & Verify (Zhang et al. 2023, arXiv 2309.08168): an adaptive confidence threshold."""

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule
from egag.stopping.threshold import AdaptiveThreshold
from utils.events import Round


class DraftVerifyGamma(LengthRule):
    """Stops after a draft if its distribution gives its most probable token less than t; the draft is kept.

    t follows the acceptance rate of the drafts (`AdaptiveThreshold`); a round that drafted to the limit does not lower
    it. t starts at 0.8. The paper starts at 0.5 under sampling. The source code reads the drawn token's probability
    under sampling, which with greedy decoding is the top one. The probability is read on the CPU, which costs one wait
    per draft on a GPU. A drafter without a distribution drafts to the limit.

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
