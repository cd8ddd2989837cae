"""Cascade (arXiv 2506.20675): a length is tested on a few rounds, then held for many; drafting stops where it costs."""

from collections.abc import Generator

from egag.bandits.bandit import Arm
from egag.length_rule import LengthRule
from utils.events import Round

Schedule = Generator[int, Round, None]

_FIRST = 3
_LONGEST_REST = 16
"""How many times as long as at first drafting rests at the most, where it did not pay again and again."""


class CascadeGamma(LengthRule):
    """Holds the length of the highest utility, or drafts nothing where no utility passes 1.

    The utility of a length is the tokens of its rounds over their cost in rounds without drafts. That is tokens per
    second over those of plain decoding. In a mixture of experts it may fall below 1, because drafts wake experts.

    A test plays `cascade_test` rounds without drafts, as many with the last length, and as many with the next longer or
    shorter ones as long as the utility rises. Then the best length is held for `cascade_hold` rounds. Where none passes
    1, rounds draft nothing for as long, and for twice as long after each further test without a gain. The paper gives
    no sizes of its steps for other models than its own: the defaults are ours.

    Example: 20 tokens/s without drafts, 26 with 3, 24 with 4 and 25 with 2 -> 3 is held.
    """

    def __init__(self, cascade_gamma_max: int = 8, cascade_test: int = 4, cascade_hold: int = 24) -> None:
        self.longest, self.test, self.hold = cascade_gamma_max, cascade_test, cascade_hold
        self.begin()

    def begin(self) -> None:
        self._schedule = self._tests_and_holds()
        self.gamma = next(self._schedule)

    def update(self, round: Round) -> None:
        self.gamma = self._schedule.send(round)

    def _tests_and_holds(self) -> Schedule:
        """The gamma of each round, sent its outcome."""
        length, rest = min(_FIRST, self.longest), 1
        while True:
            plain = yield from self._rate(0)
            length, rate = yield from self._climbed(length)
            pays = rate > plain
            rest = 1 if pays else min(2 * rest, _LONGEST_REST)
            for _ in range(self.hold * (1 if pays else rest // 2)):
                yield length if pays else 0

    def _climbed(self, length: int) -> Generator[int, Round, tuple[int, float]]:
        """The best length near this one, and its tokens per second."""
        best = length, (yield from self._rate(length))
        for step in (1, -1):
            start = best[0]
            while 1 <= best[0] + step <= self.longest:
                tried = best[0] + step, (yield from self._rate(best[0] + step))
                if tried[1] <= best[1]:
                    break
                best = tried
            if best[0] != start:
                break
        return best

    def _rate(self, length: int) -> Generator[int, Round, float]:
        """Tokens per second of a few rounds of this length."""
        played = Arm()
        for _ in range(self.test):
            played.pay((yield length))
        return played.rate
