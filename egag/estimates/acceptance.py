"""The probability that a judged draft is accepted: logistic regression that learns from verdicts."""

import math
from collections.abc import Sequence

Features = tuple[float, float, float, float]

# The prior weights of the features in the log odds. They were fitted on drafts of trained drafters of several kinds,
# whose weights agree: a drafter trained on the target is well calibrated.
PRIOR: Features = (0.4, 1.4, 0.0, 0.3)
# The strength of the prior for each weight, in judged drafts of probability 1/2.
_WORTH: Features = (4.0, 20.0, 20.0, 10.0)
# The default acceptance rate, and the strength of an initial rate in judged drafts.
_UNKNOWN, _TYPICAL = 0.4, 4.0
# The decay per round of the verdicts by position. All positions decay, so a position with a low rate, which is no
# longer drafted, is tried again later.
_SHARES_KEEP = 0.97
_LEAST = 1e-4


def features(top: float, position: int, match: int = 0) -> Features:
    """The features of a draft: a bias, ln of its probability, its position from 0, ln of the match length.

    A usual draft has values near 0. The entropy adds no information to the probability: walks along 40 answers were no
    faster with it. Its computation takes as long as that of the probability.
    """
    return 1.0, math.log(max(top, _LEAST)) + 0.7, float(position), math.log1p(match)


def stated_features(chance: float, position: int) -> Features:
    """The features of a draft whose drafter predicts its acceptance.

    With the prior alone the estimate is that prediction. Verdicts then correct the prediction, as they correct a
    probability.
    """
    chance = min(max(chance, _LEAST), 1.0 - _LEAST)
    return 1.0, (math.log(chance / (1.0 - chance)) - PRIOR[0]) / PRIOR[1], float(position), 0.0


def copied_features(chance: float, match: int, position: int) -> Features:
    """The features of a draft that was copied. chance: the share of earlier places that went on so.

    With the prior alone its log odds are -0.7 + 1.7 ln chance + 1.5 ln(1 + match). They were fitted on the copies of
    suffix trees in 100 answers. Example: chance .5 behind one token .30, behind ten .85.
    """
    odds = 1.5 * math.log1p(match) + 1.7 * math.log(max(chance, _LEAST)) - 0.7
    return 1.0, (odds - PRIOR[0]) / PRIOR[1], float(position), 0.0


class AcceptanceEstimator:
    """Logistic regression with one Newton step per round; older verdicts decay by `forgetting` per round with verdicts.

    Weights w minimise the decayed log loss of all drafts so far plus the prior's, (w - w0)' A0 (w - w0) / 2. The plain
    acceptance rate by position serves drafts without features.

    Example: with the prior alone a draft of probability e^-0.7 at position 0 is accepted with probability 1/(1+e^-0.4).
    """

    def __init__(self, shares: Sequence[float] = (), forgetting: float = 0.99) -> None:
        self.weights = list(PRIOR)
        self.forgetting = forgetting
        self._prior = [worth / 4 for worth in _WORTH]
        self._seen = [[0.0] * len(PRIOR) for _ in PRIOR]
        self._pull = [0.0] * len(PRIOR)
        self._new = 0
        self._judged: list[float] = []
        self._accepted: list[float] = []
        self.shares = tuple(shares)

    def chance(self, x: Features) -> float:
        """The probability that a draft with these features is accepted."""
        w = self.weights
        z = w[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3]
        return 1.0 / (1.0 + math.exp(-z)) if z > -30.0 else 0.0

    def typical(self, position: int) -> float:
        """The recent acceptance rate of judged drafts at this position, from 0.

        Without an initial measurement, an unseen position has the rate of the position before it.
        """
        known = self.shares
        if known:
            return self._share(position, known[min(position, len(known) - 1)])
        share = _UNKNOWN
        for place in range(min(position + 1, len(self._judged))):
            share = self._share(place, share)
        return share

    def _share(self, position: int, prior: float) -> float:
        if position >= len(self._judged):
            return prior
        return (self._accepted[position] + _TYPICAL * prior) / (self._judged[position] + _TYPICAL)

    def add(self, x: Features, accepted: bool) -> None:
        """Record a verdict; it takes effect at the next `refresh`."""
        chance = self.chance(x)
        wide, error = chance * (1.0 - chance), accepted - chance
        if not self._new:
            self._fade()
        self._new += 1
        for row, value in enumerate(x):
            if value:
                self._pull[row] += error * value
                line, weight = self._seen[row], wide * value
                for column in range(row + 1):
                    line[column] += weight * x[column]

    def count(self, position: int, accepted: bool) -> None:
        """Record that a draft at this position was judged, and whether a draft there was accepted."""
        while len(self._judged) <= position:
            self._judged.append(0.0)
            self._accepted.append(0.0)
        self._judged[position] += 1.0
        self._accepted[position] += accepted

    def refresh(self) -> None:
        """One Newton step with the verdicts since the last one."""
        if not self._new:
            return
        matrix = [line.copy() for line in self._seen]
        for place, worth in enumerate(self._prior):
            matrix[place][place] += worth
        for place, step in enumerate(_solved(matrix, self._pull)):
            self.weights[place] += max(-1.0, min(1.0, step))
        self._new = 0

    def _fade(self) -> None:
        """Decay the verdicts, and restore the weight of the prior."""
        keep = self.forgetting
        self._judged = [_SHARES_KEEP * judged for judged in self._judged]
        self._accepted = [_SHARES_KEEP * accepted for accepted in self._accepted]
        self._seen = [[keep * value for value in line] for line in self._seen]
        self._pull = [
            (1.0 - keep) * worth * (start - weight)
            for worth, start, weight in zip(self._prior, PRIOR, self.weights, strict=True)
        ]


def _solved(matrix: list[list[float]], right: Sequence[float]) -> list[float]:
    """Solve A x = b by Cholesky decomposition in place, with the lower half of A, symmetric and positive definite."""
    size, x = len(right), list(right)
    for row, line in enumerate(matrix):
        left, weight = line[row], x[row]
        for column in range(row):
            other, value = matrix[column], line[column]
            for k in range(column):
                value -= line[k] * other[k]
            line[column] = value = value / other[column]
            left -= value * value
            weight -= value * x[column]
        line[row] = math.sqrt(left)
        x[row] = weight / line[row]
    for row in reversed(range(size)):
        line = matrix[row]
        x[row] /= line[row]
        for column in range(row):
            x[column] -= line[column] * x[row]
    return x
