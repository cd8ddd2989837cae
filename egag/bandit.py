"""UCB1 (BanditSpec, arXiv 2505.15141): which of some arms to play, where each play pays tokens and takes seconds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from utils.events import Round

K = TypeVar("K")


@dataclass(slots=True)
class Arm:
    """How often it was played, what it brought and what that took."""

    plays: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a second, total over total."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Bandit(Generic[K]):
    """Plays the arm whose tokens a second, plus a bonus for being played seldom, are the most.

    The score of an arm is rate + s * best rate * sqrt(2 ln t / plays), t the rounds so far: the bonus is measured in
    the best rate so that s, the exploration, has no unit. Each arm is played once first, in order.
    """

    def __init__(self, arms: Iterable[K], exploration: float) -> None:
        self.exploration = exploration
        self.arms: Mapping[K, Arm] = {arm: Arm() for arm in arms}

    def pay(self, arm: K, round: Round) -> None:
        """Count a round that this arm played; its seconds are all of it: drafting, verifying and the rest."""
        played = self.arms[arm]
        played.plays += 1
        played.tokens += len(round.emitted)
        played.seconds += round.draft_s + round.verify_s + round.other_s

    def choose(self) -> K:
        """The arm to play next."""
        if unplayed := [arm for arm, played in self.arms.items() if not played.plays]:
            return unplayed[0]
        best = max(played.rate for played in self.arms.values())
        total = sum(played.plays for played in self.arms.values())

        def score(arm: K) -> float:
            played = self.arms[arm]
            return played.rate + self.exploration * best * math.sqrt(2 * math.log(total) / played.plays)

        return max(self.arms, key=score)

    def told(self, name: str = "") -> str:
        """What was learned, in words: `gamma 2: 24.0 tokens/s in 10` for each arm; empty before the first round."""
        if not any(played.plays for played in self.arms.values()):
            return ""
        return ", ".join(
            f"{name}{arm}: {arm_value.rate:.1f} tokens/s in {arm_value.plays}" for arm, arm_value in self.arms.items()
        )
