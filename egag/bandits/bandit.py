"""UCB1 (BanditSpec, arXiv 2505.15141): chooses among arms; a play gives tokens and takes seconds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from utils.events import Round

K = TypeVar("K")


@dataclass(slots=True)
class Arm:
    """The number of plays of an arm, with their tokens and seconds."""

    plays: int = 0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second, total tokens over total seconds."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def pay(self, round: Round) -> None:
        """Record a round; its seconds cover drafting, verification and the rest."""
        self.plays += 1
        self.tokens += len(round.emitted)
        self.seconds += round.draft_s + round.verify_s + round.other_s


class Bandit(Generic[K]):
    """Plays the arm with the highest tokens per second plus a bonus for few plays.

    The score of an arm is rate + s * best rate * sqrt(2 ln t / plays), where t is the number of rounds so far. The
    bonus is relative to the best rate, so the exploration factor s has no unit. Each arm is played once first, in
    order.
    """

    def __init__(self, arms: Iterable[K], exploration: float) -> None:
        self.exploration = exploration
        self.arms: Mapping[K, Arm] = {arm: Arm() for arm in arms}

    def pay(self, arm: K, round: Round) -> None:
        """Record a round of this arm."""
        self.arms[arm].pay(round)

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
        """The results in words: `gamma 2: 24.0 tokens/s in 10` for each arm; empty before the first round."""
        if not any(played.plays for played in self.arms.values()):
            return ""
        return ", ".join(
            f"{name}{arm}: {arm_value.rate:.1f} tokens/s in {arm_value.plays}" for arm, arm_value in self.arms.items()
        )
