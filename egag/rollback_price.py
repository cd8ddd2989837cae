"""The price of taking tokens back: what a rejection costs on a target that cannot just forget its last rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Self

from utils.events import Round


@dataclass(frozen=True, slots=True)
class TakenBack:
    """How much a round takes back. Both are expected values, or counts of a finished round.

    rejections: the probability that a draft is rejected. reread: the tokens that the target then reads again. These are
    the root of the round and its accepted drafts.
    """

    rejections: float = 0.0
    reread: float = 0.0

    @classmethod
    def of_chain(cls, survival: Sequence[float], drafting: float = 1.0) -> Self:
        """What a chain of drafts is expected to take back.

        survival: the probability S_i that draft i is reached and accepted. drafting: S_0, the probability that the
        round has drafts at all. With n drafts r = S_0 - S_n, and the draft behind the first m is the rejected one with
        probability S_m - S_(m+1). So t = sum of (m + 1) (S_m - S_(m+1)) = S_0 + S_1 + ... + S_(n-1) - n S_n.

        Example: survival .8, .5 -> r = 1 - .5 = .5 and t = 1 + .8 - 2 x .5 = .8.
        """
        if not survival:
            return cls()
        last = survival[-1]
        return cls(drafting - last, drafting + sum(survival[:-1]) - len(survival) * last)

    @classmethod
    def of_rate(cls, alpha: float, drafts: int) -> Self:
        """What is expected of `drafts` drafts that are each accepted with probability `alpha`."""
        return cls.of_chain(tuple(accumulate([alpha] * drafts, mul)))

    @classmethod
    def of_round(cls, round: Round) -> Self:
        """What this round takes back. The next round pays for it."""
        rejected = round.accepted < round.depth and round.next_token is not None
        return cls(1.0, round.accepted + 1.0) if rejected else cls()

    @classmethod
    def paid_by(cls, round: Round) -> Self:
        """What this round paid for: that which rounds before it took back."""
        return cls(1.0, float(round.reread)) if round.reread else cls()


NOTHING_TAKEN = TakenBack()
"""All drafts were accepted, or there were none."""


@dataclass(frozen=True, slots=True)
class RollbackPrice:
    """The seconds of taking tokens back; all 0 where a crop is free.

    back_s: returning to a saved state, once per rejection. token_s: each token that is read again.

    Example: back_s 2, token_s .5, survival .8, .5 -> .5 x 2 + .8 x .5 = 1.4 per round.
    """

    back_s: float = 0.0
    token_s: float = 0.0

    def __bool__(self) -> bool:
        """Whether taking tokens back costs anything."""
        return self.back_s > 0.0 or self.token_s > 0.0

    def seconds(self, taken: TakenBack) -> float:
        """The seconds of taking this much back: B = r back_s + t token_s."""
        return taken.rejections * self.back_s + taken.reread * self.token_s

    def scaled(self, back: float, token: float | None = None) -> "RollbackPrice":
        """The same price times a factor, or times one factor per part."""
        return RollbackPrice(self.back_s * back, self.token_s * (back if token is None else token))


FREE = RollbackPrice()
"""The price on a target that keeps a row for each token."""
