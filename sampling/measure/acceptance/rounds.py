"""The rounds that decoding a text with a fixed draft length has: where they begin, and what each accepts on average.

A round begins where the last one failed, so where rounds begin depends on the draft length, and so do their rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sampling.measure.acceptance.estimate import IntervalEstimate, estimates, ratio, shares
from sampling.measure.acceptance.met import Met, Numbers
from utils.numbers.intervals import studentised_ratio


@dataclass(frozen=True, slots=True)
class RoundSums:
    """Of a fixed gamma, a row a text: places and rounds, `[n, 1]`, and accepted drafts by position, `[n, gamma]`."""

    tokens: Numbers
    rounds: Numbers
    accepted: Numbers

    @classmethod
    def of(cls, mets: Sequence[Met], gamma: int) -> "RoundSums":
        """The sums of all texts."""
        rows = [_along(met, gamma) for met in mets]
        places = np.array([[float(met.places)] for met in mets])
        return cls(places, np.array([[rounds] for rounds, _ in rows]), np.stack([accepted for _, accepted in rows]))

    def tokens_a_round(self) -> IntervalEstimate:
        """Tokens over rounds."""
        low, high = studentised_ratio(self.tokens, self.rounds, least=1.0)
        value = ratio(self.tokens.sum(axis=0), self.rounds.sum(axis=0))
        return estimates(value, low, high, self.rounds.sum(axis=0))[0]

    def joint(self) -> list[IntervalEstimate]:
        """By position, the share of all rounds that accept a draft there: what engines count."""
        return shares(self.accepted, np.broadcast_to(self.rounds, self.accepted.shape))

    def conditional(self) -> list[IntervalEstimate]:
        """By position, of the rounds that accepted the drafts before, the share that accepts the one there."""
        before = np.concatenate([self.rounds, self.accepted[:, :-1]], axis=1)
        return shares(self.accepted, before)


def _along(met: Met, gamma: int) -> tuple[float, Numbers]:
    """Expected rounds along a text, and accepted drafts by position.

    begin[i]: the chance that a round begins at place i. Its first m drafts are the text's tokens with the chances of
    `Met.follow`, and it then emits one token more.
    """
    begin, accepted = np.zeros(met.places + gamma + 1), np.zeros(gamma)
    begin[0] = 1.0
    accept, follow = np.nan_to_num(met.accept[:, :gamma]), np.nan_to_num(met.follow[:, :gamma])
    for place in range(met.places):
        if not begin[place]:
            continue
        going = np.concatenate([[1.0], np.cumprod(follow[place])])
        accepted += begin[place] * going[:-1] * accept[place]
        ends = going - np.append(going[1:], 0.0)
        begin[place + 1 : place + gamma + 2] += begin[place] * ends
    return float(begin[: met.places].sum()), accepted
