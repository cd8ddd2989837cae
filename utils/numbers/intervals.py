"""Intervals for ratios that were measured in pairs."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

FEWEST = 5
"""Values below which nothing has a 95 % interval: all that was seen of four holds their median in 88 of 100 cases."""

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


def bootstrap_ratio(
    parts: NDArray[np.float64], wholes: NDArray[np.float64], draws: int = 2000, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile bootstrap intervals of ratios of sums, resampled by rows: (low, high), `[K]` each.

    parts, wholes: `[n, K]`, a row for each unit of replication. NaN where fewer than `FEWEST` rows know
    a ratio. The resampling seed is fixed.
    """
    often = _row_counts(len(parts), draws)
    sums = often @ wholes
    ratios = np.divide(often @ parts, sums, out=np.full_like(sums, np.nan), where=sums > 0)
    tail = (1.0 - level) / 2.0
    known = (wholes > 0).sum(axis=0) >= FEWEST
    low, high = np.full((2, parts.shape[1]), np.nan)
    if known.any():
        low[known], high[known] = np.nanquantile(ratios[:, known], (tail, 1.0 - tail), axis=0)
    return low, high


@lru_cache(maxsize=8)
def _row_counts(count: int, draws: int) -> NDArray[np.float64]:
    """How often each of `count` rows is drawn in each resample, `[draws, count]`."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=draws)
    return drawn.astype(np.float64)
