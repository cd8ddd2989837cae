"""UCB1 over draft lengths (BanditSpec, arXiv 2505.15141): a bandit whose reward is tokens per second."""

from egag.bandits.bandit import Bandit
from egag.length_rule import LengthRule
from utils.events import Round


class UcbGamma(LengthRule):
    """Uses the length that `Bandit` chooses.

    Arms are 0 (no drafts), 1, 2, 4, ... up to `ucb_gamma_max`. With `ucb_remember` the estimates continue on the next
    prompt.

    Example with s 0: rates 20, 25 and 24 for the lengths 0, 1 and 2 -> 1.
    """

    def __init__(self, ucb_gamma_max: int = 8, ucb_exploration: float = 0.2, ucb_remember: bool = True) -> None:
        powers = (1 << power for power in range(ucb_gamma_max.bit_length()))
        self.lengths = [0, *(length for length in powers if length < ucb_gamma_max), ucb_gamma_max]
        self.exploration, self.remember = ucb_exploration, ucb_remember
        self._bandit = Bandit(self.lengths, self.exploration)
        self.begin()

    def begin(self) -> None:
        if not self.remember:
            self._bandit = Bandit(self.lengths, self.exploration)
        self.gamma = self._bandit.choose()

    def update(self, round: Round) -> None:
        self._bandit.pay(round.gamma, round)
        self.gamma = self._bandit.choose()

    def adopt(self, earlier: LengthRule) -> None:
        if isinstance(earlier, UcbGamma) and self.remember and earlier.lengths == self.lengths:
            self._bandit.arms = earlier._bandit.arms
            self.gamma = self._bandit.choose()

    def memory(self) -> str:
        return self._bandit.told("gamma ") if self.remember else ""
