"""SpecDec++ (arXiv 2405.19715): stops if a rejection among the drafts so far is probable enough."""

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import LengthRule
from egag.stopping.calibration import Calibration
from utils.events import Round


class SpecDecPpGamma(LengthRule):
    """Stops after a draft with 1 - a_1 a_2 ... a_i > h, a_j the acceptance probability of draft j; the draft is kept.

    The paper trains a head for a. Here a is a calibrated function of the drafter's probability q of the draft, learnt
    from verdicts (`Calibration`). It starts as a = q. With `specdec_remember` it continues on the next prompt. q is
    read on the CPU, which costs one wait per draft on a GPU. A drafter without a distribution drafts to the limit.

    Example with h 0.5, before anything was judged: q 0.85, 0.75, 0.55 -> 1 - 0.85 = 0.15, 0.36, 0.65: three drafts.
    """

    def __init__(
        self, specdec_threshold: float = 0.5, specdec_gamma_max: int = 20, specdec_remember: bool = True
    ) -> None:
        self.threshold, self.gamma, self.remember = specdec_threshold, specdec_gamma_max, specdec_remember
        self._calibration = Calibration()
        self.begin()

    def begin(self) -> None:
        if not self.remember:
            self._calibration = Calibration()
        self._chances: list[float] = []
        self._survival = 1.0

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        if drafted == 0:
            self._chances, self._survival = [], 1.0
        return drafted < self.gamma

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        if distribution is not None and token is not None:
            self._chances.append(distribution.chance(token))
            self._survival *= self._calibration.acceptance(self._chances[-1])
        return drafted < self.gamma and 1 - self._survival <= self.threshold

    def update(self, round: Round) -> None:
        """Learn from the judged drafts for which the rule was asked."""
        judged = self._chances[: round.tested]
        for place, chance in enumerate(judged):
            self._calibration.learn(chance, place < round.accepted)
        self._chances = []

    def adopt(self, earlier: LengthRule) -> None:
        if isinstance(earlier, SpecDecPpGamma) and self.remember:
            self._calibration = earlier._calibration

    def memory(self) -> str:
        judged = self._calibration.judged
        return f"acceptance by probability, of {judged:,} drafts" if self.remember and judged else ""
