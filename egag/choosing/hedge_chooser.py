"""HedgeSpec's choice among drafters (arXiv 2510.20064): each is judged by all of the verified text, whoever drafted."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from egag.choosing.drafter_chooser import DrafterChooser
from egag.expected_round import ExpectedRound, best_length
from egag.survival import SurvivalGamma
from utils.events import Round

# The decay per verified token of what is known of a drafter, and the tokens that a first guess counts as.
_NONE = "none"
_KEEP, _GUESS, _PRIOR = 0.98, 4.0, 0.5


@dataclass(slots=True)
class DrafterScore:
    """What the verified text says of one drafter: accepted and judged tokens, decayed, and its gains so far."""

    accepted: float = _GUESS * _PRIOR
    judged: float = _GUESS
    gain: float = 0.0

    @property
    def alpha(self) -> float:
        """The probability that its draft of a token is accepted."""
        return self.accepted / self.judged

    def see(self, acceptances: Sequence[float]) -> None:
        """Learn from the probability of acceptance at each judged token."""
        for chance in acceptances:
            self.accepted = _KEEP * self.accepted + chance
            self.judged = _KEEP * self.judged + 1.0

    def run(self, acceptances: Sequence[float], longest: int) -> float:
        """The expected accepted drafts of a chain of `longest` from the start of these tokens on.

        The verified text may end before the chain does. What would have followed is censored: it counts with `alpha`.
        Example: 1, .5 of a chain of 3, alpha .6 -> 1 + .5 + .5 x .6 = 1.8.
        """
        seen = [*acceptances[:longest]]
        return math.fsum(accumulate([*seen, *[self.alpha] * (longest - len(seen))], mul))


class HedgeChooser(DrafterChooser):
    """Draws the drafter of a round with Hedge's weights; the length is that of its survival rule, as in `auto`.

    `learn_text` is told how every drafter would have fared on the tokens that were verified last. Its gain is the rate
    that this stands for, (1 + accepted) / T, over the best of the round. T are the seconds of its best chain at its
    alpha. Weights are exp(eta G), G the gains of this text so far, eta = sqrt(8 ln N / t) after t rounds of N drafters.
    The paper's gain is the accepted length; ours is divided by time, because our drafters differ in cost.

    Example: N 2, t 8, gains 8 and 5: eta = .83, weights e^6.66 and e^4.16, so 92 % and 8 %.
    """

    def begin(self) -> None:
        super().begin()
        self.scores: dict[str, DrafterScore] = {}
        self._coins = random.Random(0)
        self._rounds = 0

    def learn_text(self, seen: Mapping[str, Sequence[float] | None]) -> None:
        """Score drafters by the tokens verified last.

        seen: of each, the probability that its draft of each token is accepted, up to the last that is known. None for
        one that nobody asked, whose gain is what it brings on average.
        """
        rates = {}
        for name, acceptances in seen.items():
            score = self.scores.setdefault(name, DrafterScore())
            longest, expected = self._best(score, self.rule_for(name))
            rates[name] = (1.0 + score.run(acceptances or (), longest)) / expected.seconds
            score.see(acceptances or ())
        without = self.without_drafts()
        best = max(without.rate, *rates.values()) if rates else without.rate
        for name, rate in {**rates, _NONE: without.rate}.items():
            self.scores.setdefault(name, DrafterScore()).gain += rate / best
        self._rounds += 1

    def weights(self, names: Sequence[str]) -> list[float]:
        """The probability of each of these."""
        eta = math.sqrt(8.0 * math.log(max(2, len(self.scores))) / max(1, self._rounds))
        gains = [self.scores[name].gain if name in self.scores else 0.0 for name in names]
        shares = [math.exp(eta * (gain - max(gains))) for gain in gains]
        return [share / sum(shares) for share in shares]

    def choose(self, expected: Mapping[str, ExpectedRound]) -> str:
        names = [*expected]
        return self._coins.choices(names, self.weights(names))[0]

    def _best(self, score: DrafterScore, rule: SurvivalGamma) -> tuple[int, ExpectedRound]:
        """The best chain at its alpha: its drafts, at least one, and the round that it makes."""
        live = rule.learnt.live
        count, expected = best_length([score.alpha**depth for depth in range(1, self.gamma + 1)], live.seconds)
        return (count, expected) if count else (1, ExpectedRound(1.0 + score.alpha, live.seconds(1)))


def judged_by(round: Round) -> list[float]:
    """What a drafter's own round says of its drafts: 1 for each that was accepted, 0 for the one that was not."""
    return [1.0] * round.accepted + [0.0] * (round.tested - round.accepted)
