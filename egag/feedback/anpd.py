"""ANPD's adaptive length (Ou et al. 2024, arXiv 2404.08698): one draft more, or halfway to the accepted number."""

from egag.length_rule import LengthRule
from utils.events import Round


class AnpdGamma(LengthRule):
    """If m = L: gamma g + 1, at most gamma_max. Otherwise (g + m + 1) // 2, which is at least 1.

    L is the number of drafts, m the number of accepted drafts. A round without drafts changes nothing.

    Example with g 4: 4 of 4 -> 5; 1 of 5 -> (5 + 1 + 1) // 2 = 3; 0 of 3 -> 2.
    """

    def __init__(self, anpd_gamma: int = 4, anpd_gamma_max: int = 8) -> None:
        self.start, self.most = anpd_gamma, anpd_gamma_max
        self.begin()

    def begin(self) -> None:
        self.gamma = self.start

    def update(self, round: Round) -> None:
        if not round.drafts:
            return
        whole = round.accepted == round.depth
        self.gamma = min(self.most, self.gamma + 1) if whole else (self.gamma + round.accepted + 1) // 2
