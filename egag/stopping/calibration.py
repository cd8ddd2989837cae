"""The acceptance rate by draft probability, counted in bins and non-decreasing."""

_BINS = 10
_PRIOR = 4.0


class Calibration:
    """Accepted / judged drafts by the drafter's probability, in ten bins, with isotonic regression.

    Each bin starts with 4 judged drafts, accepted at the rate of the bin's middle. Acceptance is thus the probability
    itself until verdicts correct it. Neighbouring bins with falling rates are pooled (pool adjacent violators), which
    gives the closest non-decreasing function.

    Example: q 0.95 begins at 0.95; after four rejections there it is 3.8 / 8 = 0.475, below its neighbours 0.85, 0.75
    and 0.65: pooled, all four are (3.8 + 3.4 + 3 + 2.6) / 20 = 0.64, which is above 0.55.
    """

    def __init__(self) -> None:
        self.judged = 0
        self._accepted = [_PRIOR * (place + 0.5) / _BINS for place in range(_BINS)]
        self._seen = [_PRIOR] * _BINS
        self._rates = self._pooled()

    def acceptance(self, chance: float) -> float:
        """The acceptance rate of judged drafts of this probability."""
        return self._rates[_bin(chance)]

    def learn(self, chance: float, accepted: bool) -> None:
        """Record a judged draft."""
        self.judged += 1
        self._accepted[_bin(chance)] += accepted
        self._seen[_bin(chance)] += 1
        self._rates = self._pooled()

    def _pooled(self) -> list[float]:
        pools: list[tuple[float, float, int]] = []
        for accepted, seen in zip(self._accepted, self._seen, strict=True):
            pools.append((accepted, seen, 1))
            while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
                (a, b, c), (d, e, f) = pools[-2:]
                pools[-2:] = [(a + d, b + e, c + f)]
        return [accepted / seen for accepted, seen, bins in pools for _ in range(bins)]


def _bin(chance: float) -> int:
    return min(int(chance * _BINS), _BINS - 1)
