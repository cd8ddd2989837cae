"""Intervals for ratios that were measured in pairs."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

# Resampled ranks held at once: bounds the memory, however many values there are.
_CHUNK = 1 << 20

Ranks = NDArray[np.intp]


def bootstrap_median(values: Sequence[float], draws: int = 2000, level: float = 0.95) -> tuple[float, float, float]:
    """Median and its percentile bootstrap interval: (median, low, high). The resampling seed is fixed.

    Raises `ValueError` for no values. One value is its own interval.
    """
    if not len(values):
        raise ValueError("no values given; expected at least one")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    lower, upper = _middle_ranks(len(ordered), draws)
    medians = np.sort((ordered[lower] + ordered[upper]) / 2.0)
    tail = (1.0 - level) / 2.0
    low, high = medians[int(tail * draws)], medians[min(draws - 1, int((1.0 - tail) * draws))]
    return float(median(values)), float(low), float(high)


@lru_cache(maxsize=64)
def _middle_ranks(count: int, draws: int) -> tuple[Ranks, Ranks]:
    """The two middle ranks of each resample of `count` values, `[draws]` each; equal where `count` is odd.

    The median of a resample is the value (or the mean of the two values) at its middle ranks, so that these
    are drawn once for all sets of values of this size. Example: ranks 0 2 2 drawn of 3 -> (2, 2).
    """
    rng = np.random.default_rng(0)
    middle = ((count - 1) // 2, count // 2)
    rows = max(1, _CHUNK // count)
    parts = []
    for start in range(0, draws, rows):
        drawn = rng.integers(0, count, size=(min(rows, draws - start), count))
        parts.append(np.partition(drawn, middle, axis=1)[:, middle])
    ranks = np.concatenate(parts)
    return ranks[:, 0], ranks[:, 1]
