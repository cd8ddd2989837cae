import math
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from tests.refusals import refused
from utils.numbers.intervals import FEWEST, median_interval, order_pair, share_interval, studentised_ratio


def test_one_value_is_its_own_interval() -> None:
    assert median_interval([1.5]) == (1.5, 1.5, 1.5)


def test_no_values_are_refused() -> None:
    with refused("values", error=ValueError):
        median_interval([])


def test_ranks_and_coverages_worked_out_by_hand() -> None:
    """Of 8 values the second pair has 1 - 2 * 9 / 256, which is too little; of 5 even the first has."""
    assert order_pair(12) == (3, 1 - 2 * (1 + 12 + 66) / 2**12)
    assert order_pair(8) == (1, 1 - 2 / 256) and order_pair(8, level=0.9) == (2, 1 - 18 / 256)
    assert order_pair(5) == (1, 0.9375) and order_pair(1) == (1, 0.0)
    from scipy.stats import binom

    assert order_pair(2000) == (956, pytest.approx(1 - 2 * binom.cdf(955, 2000, 0.5)))


@pytest.mark.parametrize("count", [6, 7, 8, 12, 20, 33, 50])
def test_the_pair_is_that_of_scipys_quantile_test(count: int) -> None:
    from scipy.stats import quantile_test

    values = [math.sin(7.0 * place) for place in range(count)]
    middle, low, high = median_interval(values)
    ends = quantile_test(values, p=0.5).confidence_interval(0.95)
    assert middle == median(values) and (low, high) == (ends.low, ends.high)


def test_order_does_not_matter_and_a_higher_level_is_wider() -> None:
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 9.0]
    assert median_interval(values) == median_interval(sorted(values)) == (3.5, 1.0, 9.0)
    many = [float(value) for value in range(30)]
    ends = [median_interval(many, level)[1:] for level in (0.5, 0.9, 0.99)]
    assert all(b[0] < a[0] < a[1] < b[1] for a, b in pairwise(ends))


def test_a_share_without_clusters_is_that_of_clopper_and_pearson() -> None:
    """All of five rows agree: as many cases as there are. None hit, all hit, two of four."""
    from scipy.stats import binomtest

    parts = np.tile([0.0, 4.0, 2.0], (FEWEST, 1))
    wholes = np.full((FEWEST, 3), 4.0)
    low, high = share_interval(parts, wholes)
    for place, hits in enumerate((0, 20, 10)):
        assert (low[place], high[place]) == pytest.approx(tuple(binomtest(hits, 20).proportion_ci(0.95)))


def test_rows_that_differ_make_a_share_less_sure() -> None:
    """The same 50 of 100: once half of each row, once whole rows."""
    even, clustered = np.full(10, 5.0), np.array([10.0, 0.0] * 5)
    low, high = share_interval(np.stack([even, clustered], axis=1), np.full((10, 2), 10.0))
    assert high[1] - low[1] > 3 * (high[0] - low[0])


@pytest.mark.parametrize("interval", [share_interval, studentised_ratio], ids=lambda one: one.__name__)
def test_few_rows_know_no_interval(interval: object) -> None:
    assert callable(interval)
    parts = np.array([[float(row), 4.0, 0.0] for row in range(FEWEST)])
    wholes = np.array([[4.0, 8.0 * (row > 0), 0.0] for row in range(FEWEST)])
    low, high = interval(parts, wholes)
    assert 0.0 <= low[0] < 0.5 < high[0]
    assert np.isnan(low[1:]).all() and np.isnan(high[1:]).all()  # four rows know the second, none the third
    assert np.isnan(interval(parts[1:], wholes[1:])[0]).all()


def test_many_rows_have_the_interval_of_the_normal_law() -> None:
    rng = np.random.default_rng(1)
    wholes = np.full((400, 1), 10.0)
    parts = rng.binomial(10, 0.3, (400, 1)).astype(float)
    for low, high in (share_interval(parts, wholes), studentised_ratio(parts, wholes)):
        assert high[0] - low[0] == pytest.approx(2 * 1.96 * math.sqrt(0.3 * 0.7 / 4000), rel=0.1)


def test_a_studentised_bootstrap_agrees_with_one_resample_after_the_other() -> None:
    rng = np.random.default_rng(5)
    wholes = rng.uniform(5.0, 50.0, 24)
    parts = wholes * rng.gamma(4.0, 0.5, 24)
    ratio = parts.sum() / wholes.sum()

    def error(a: np.ndarray, b: np.ndarray) -> float:
        return math.sqrt(((a - a.sum() / b.sum() * b) ** 2).sum()) / float(b.sum())

    off = []
    for _ in range(20_000):
        drawn = rng.integers(0, 24, 24)
        a, b = parts[drawn], wholes[drawn]
        off.append((a.sum() / b.sum() - ratio) / error(a, b))
    first, last = np.quantile(off, (0.025, 0.975))
    low, high = studentised_ratio(parts[:, None], wholes[:, None], draws=20_000)
    own = error(parts, wholes)
    assert low[0] == pytest.approx(ratio - last * own, rel=0.03)
    assert high[0] == pytest.approx(ratio - first * own, rel=0.03)


def test_equal_ratios_are_their_own_interval_and_none_is_below_the_least() -> None:
    wholes = np.arange(1.0, 9.0)[:, None]
    assert studentised_ratio(3.0 * wholes, wholes) == (pytest.approx([3.0]), pytest.approx([3.0]))
    parts = np.array([[0.01], [0.0], [0.02], [9.0], [0.0], [0.1], [0.03], [0.02]])
    assert studentised_ratio(parts, np.ones((8, 1)), least=0.5)[0] == [0.5]
    assert studentised_ratio(parts, np.ones((8, 1)))[0] >= 0.0


def test_the_median_of_a_skewed_law_is_held_as_often_as_the_pair_says() -> None:
    """The exact coverage needs no normal law: 4,000 samples of 12 exponential times, 96.1 % expected."""
    rng = np.random.default_rng(2)
    held = [low <= math.log(2.0) <= high for _, low, high in map(median_interval, rng.exponential(size=(4000, 12)))]
    assert np.mean(held) == pytest.approx(order_pair(12).coverage, abs=0.012)
