"""UCB1 over draft lengths (BanditSpec, arXiv 2505.15141): a bandit that is paid in tokens a second."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from egag.controller import GammaController

if TYPE_CHECKING:
    from sampling.events import Round


@dataclass(slots=True)
class _Arm:
    """One length: how often it was played, what it brought and what that took."""

    plays: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a second, total over total."""
        return self.tokens / self.seconds if self.seconds else 0.0


class UcbGamma(GammaController):
    """Plays the length whose tokens a second, plus a bonus for being played seldom, are the most.

    The score of an arm is rate + s * best rate * sqrt(2 ln t / plays), t the rounds so far: the bonus is measured in
    the best rate so that s has no unit. Arms are 0 (no drafts), 1, 2, 4, ... up to `ucb_gamma_max`, each played once
    first. A round's seconds are all of it: drafting, verifying and the rest. With `ucb_remember` on what was learned
    goes on with the next prompt.

    Example with s 0: rates 20, 25 and 24 for the lengths 0, 1 and 2 -> 1.
    """

    def __init__(self, ucb_gamma_max: int = 8, ucb_exploration: float = 0.2, ucb_remember: bool = True) -> None:
        powers = (1 << power for power in range(ucb_gamma_max.bit_length()))
        self.lengths = [0, *(length for length in powers if length < ucb_gamma_max), ucb_gamma_max]
        self.exploration, self.remember = ucb_exploration, ucb_remember
        self._arms = {length: _Arm() for length in self.lengths}
        self.begin()

    def begin(self) -> None:
        if not self.remember:
            self._arms = {length: _Arm() for length in self.lengths}
        self.gamma = self._choose()

    def update(self, round: "Round") -> None:
        arm = self._arms[round.gamma]
        arm.plays += 1
        arm.tokens += len(round.emitted)
        arm.seconds += round.draft_s + round.verify_s + round.other_s
        self.gamma = self._choose()

    def adopt(self, earlier: GammaController) -> None:
        if isinstance(earlier, UcbGamma) and self.remember and earlier.lengths == self.lengths:
            self._arms = earlier._arms
            self.gamma = self._choose()

    def memory(self) -> str:
        arms = self._arms
        if not self.remember or not any(arm.plays for arm in arms.values()):
            return ""
        return ", ".join(f"gamma {length}: {arm.rate:.1f} tokens/s in {arm.plays}" for length, arm in arms.items())

    def _choose(self) -> int:
        arms = self._arms
        unplayed = [length for length in self.lengths if not arms[length].plays]
        if unplayed:
            return unplayed[0]
        best = max(arm.rate for arm in arms.values())
        total = sum(arm.plays for arm in arms.values())

        def score(length: int) -> float:
            bonus = math.sqrt(2 * math.log(total) / arms[length].plays)
            return arms[length].rate + self.exploration * best * bonus

        return max(self.lengths, key=score)
