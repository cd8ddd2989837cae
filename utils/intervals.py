"""Intervals for ratios that were measured in pairs."""

import random
from collections.abc import Sequence
from statistics import median


def bootstrap_median(values: Sequence[float], draws: int = 2000, level: float = 0.95) -> tuple[float, float, float]:
    """Median and its percentile bootstrap interval: (median, low, high). The resampling seed is fixed.

    Raises `ValueError` for no values. One value is its own interval.
    """
    if not values:
        raise ValueError("no values given; allowed: at least one")
    rng = random.Random(0)
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(draws))
    tail = (1.0 - level) / 2.0
    return median(values), medians[int(tail * draws)], medians[min(draws - 1, int((1.0 - tail) * draws))]
