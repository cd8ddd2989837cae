"""Intervals over prompts: of medians, of shares and of other ratios of sums (docs/intervals.md)."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEWEST = 5
"""Values below which nothing has a 95 % interval: all that was seen of four holds their median in 88 of 100 cases."""

Numbers = NDArray[np.float64]
Ends = tuple[Numbers, Numbers]


class OrderPair(NamedTuple):
    """Two of n sorted values that are as far from either end: the `rank`-th of both, from 1.

    coverage: how often the values between them hold the median of what they are drawn from.
    """

    rank: int
    coverage: float


@lru_cache
def order_pair(count: int, level: float = 0.95) -> OrderPair:
    """The closest pair that covers `level`; of too few values all of them, which cover less.

    Each value is below the median with probability 1/2, whatever the distribution: so many of `count` values are below
    it as heads come of so many coins. Example: 12 -> the 3rd and the 10th, 1 - 2 (1 + 12 + 66) / 2^12 = 0.961.
    """
    ways = accumulate(range(1, (count + 1) // 2), lambda last, heads: last * (count - heads + 1) // heads, initial=1)
    pairs = [OrderPair(rank, 1.0 - cases / 2 ** (count - 1)) for rank, cases in enumerate(accumulate(ways), start=1)]
    return next((pair for pair in reversed(pairs) if pair.coverage >= level), pairs[0])


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Median and its interval between two order statistics: (median, low, high); see `order_pair`.

    Raises `ValueError` for no values. One value is its own interval.
    """
    if not len(values):
        raise ValueError("no values given; expected at least one")
    ordered = sorted(map(float, values))
    rank = order_pair(len(ordered), level).rank
    return float(median(ordered)), ordered[rank - 1], ordered[-rank]


def share_interval(parts: Numbers, wholes: Numbers, level: float = 0.95) -> Ends:
    """Intervals of shares, sums of parts over sums of wholes, over the rows: (low, high), `[K]` each.

    parts, wholes: counts `[n, K]`, a row for each unit of replication, parts not above wholes. NaN where fewer than
    `FEWEST` rows know a share. The interval of Korn and Graubard (1998): that of Clopper and Pearson for as many
    independent cases as would be known as well as these, which are alike within a row; as many as there are where all
    rows agree.
    """
    from scipy.stats import beta, t

    tail = (1.0 - level) / 2.0
    rows, cases = (wholes > 0).sum(axis=0), wholes.sum(axis=0)
    known = rows >= FEWEST
    low, high = np.full((2, parts.shape[1]), np.nan)
    rows, cases, parts, wholes = rows[known], cases[known], parts[:, known], wholes[:, known]
    share = parts.sum(axis=0) / cases
    variance = ((parts - share * wholes) ** 2).sum(axis=0) * rows / (rows - 1) / cases**2
    fewer = (t.ppf(tail, np.maximum(cases - 1, 1)) / t.ppf(tail, rows - 1)) ** 2
    alike = variance <= 1e-12
    enough = np.divide(share * (1.0 - share) * fewer, variance, out=cases.copy(), where=~alike)
    enough = np.minimum(enough, cases)
    hit, missed = share * enough, (1.0 - share) * enough
    low[known] = np.where(hit > 0, beta.ppf(tail, np.maximum(hit, 1e-9), missed + 1.0), 0.0)
    high[known] = np.where(missed > 0, beta.ppf(1.0 - tail, hit + 1.0, np.maximum(missed, 1e-9)), 1.0)
    return low, high


def studentised_ratio(
    parts: Numbers, wholes: Numbers, least: float = 0.0, draws: int = 2000, level: float = 0.95
) -> Ends:
    """Studentised bootstrap intervals of ratios of sums, resampled by rows: (low, high), `[K]` each.

    parts, wholes: `[n, K]`, a row for each unit of replication. least: what no ratio can be below. NaN where fewer
    than `FEWEST` rows know a ratio. A resample tells how many standard errors of its own its ratio is off (Efron and
    Tibshirani 1993, chapter 12; the error linearised); one whose rows all have the same ratio tells nothing. The
    resampling seed is fixed.
    """
    known = (wholes > 0).sum(axis=0) >= FEWEST
    low, high = np.full((2, parts.shape[1]), np.nan)
    if not known.any():
        return low, high
    parts, wholes = parts[:, known], wholes[:, known]
    once = np.ones((1, len(parts)))
    ratio, error = _linearised(once, parts, wholes)
    ratios, errors = _linearised(_row_counts(len(parts), draws), parts, wholes)
    off = np.divide(ratios - ratio, errors, out=np.full_like(ratios, np.nan), where=errors > 0)
    # Equal ratios everywhere are their own interval.
    off[:, error[0] == 0.0] = 0.0
    ends = np.nanquantile(off, ((1.0 + level) / 2.0, (1.0 - level) / 2.0), axis=0)
    low[known], high[known] = np.maximum(ratio - ends * error, least)
    return low, high


def _linearised(often: Numbers, parts: Numbers, wholes: Numbers) -> Ends:
    """Ratios of sums and their standard errors, `[draws, K]` each, of rows that count so often, `[draws, n]`.

    The errors lack the factor n / (n - 1), which is the same for all.
    """
    sums = often @ wholes
    ratios = np.divide(often @ parts, sums, out=np.full_like(sums, np.nan), where=sums > 0)
    squares = often @ parts**2
    left = squares - 2.0 * ratios * (often @ (parts * wholes)) + ratios**2 * (often @ wholes**2)
    # What rounding leaves of equal terms is no spread.
    left = np.where(left > 1e-10 * squares, left, 0.0)
    return ratios, np.divide(np.sqrt(left), sums, out=np.zeros_like(sums), where=sums > 0)


@lru_cache(maxsize=8)
def _row_counts(count: int, draws: int) -> Numbers:
    """How often each of `count` rows is drawn in each resample, `[draws, count]`."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=draws)
    return drawn.astype(np.float64)
