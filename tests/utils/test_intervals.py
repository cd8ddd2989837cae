import math
import random
from statistics import median

import numpy as np
import pytest

from tests.refusals import refused
from utils.numbers import intervals
from utils.numbers.intervals import FEWEST, bootstrap_median, bootstrap_ratio


def test_one_value_is_its_own_interval() -> None:
    assert bootstrap_median([1.5]) == (1.5, 1.5, 1.5)


def test_no_values_are_refused() -> None:
    with refused("values", error=ValueError):
        bootstrap_median([])


def test_the_median_lies_in_its_interval_and_order_does_not_matter() -> None:
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 9.0]
    middle, low, high = bootstrap_median(values)
    assert middle == 3.5 and 1.0 <= low < middle < high <= 9.0
    assert bootstrap_median(sorted(values)) == (middle, low, high)


@pytest.mark.parametrize("count", [20, 21])
def test_it_agrees_with_resampling_one_by_one(count: int) -> None:
    rng = random.Random(3)
    values = [rng.gauss(0.0, 1.0) for _ in range(count)]
    medians = sorted(median(rng.choices(values, k=count)) for _ in range(20_000))
    _, low, high = bootstrap_median(values, draws=20_000)
    assert low == pytest.approx(medians[500], abs=0.08) and high == pytest.approx(medians[19_500], abs=0.08)


def test_resampling_in_parts_is_resampling_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 70 values 10 resamples fit into a part; the last of three parts is short."""
    values = [math.sin(value) for value in range(70)]
    at_once = bootstrap_median(values, draws=25)
    intervals._middle_ranks.cache_clear()
    monkeypatch.setattr(intervals, "_CHUNK", 700)
    assert intervals._middle_ranks(70, 25)[0].shape == (25,)
    assert bootstrap_median(values, draws=25) == at_once
    intervals._middle_ranks.cache_clear()


def test_what_is_printed_stays_what_it_was() -> None:
    """The seed and the number of draws are fixed, so that a report is the same twice."""
    values = [0.1 * value * value for value in range(11)]
    assert bootstrap_median(values) == pytest.approx((2.5, 0.4, 6.4))
    low, high = bootstrap_ratio(np.array([[value] for value in values]), np.full((11, 1), 10.0))
    assert (low[0], high[0]) == pytest.approx((0.17090909, 0.54454545))


def test_a_higher_level_is_wider() -> None:
    values = [float(value) for value in range(30)]
    _, low, high = bootstrap_median(values, level=0.5)
    _, lower, higher = bootstrap_median(values, level=0.99)
    assert lower < low < high < higher


def test_ratios_of_sums_are_resampled_by_rows() -> None:
    parts = np.array([[float(row), 4.0, 0.0] for row in range(FEWEST)])
    wholes = np.array([[4.0, 8.0 * (row > 0), 0.0] for row in range(FEWEST)])
    low, high = bootstrap_ratio(parts, wholes)
    assert 0.0 < low[0] < 0.5 < high[0] < 1.0
    assert np.isnan(low[1:]).all() and np.isnan(high[1:]).all()  # four rows know the second, none the third
    assert np.isnan(bootstrap_ratio(parts[1:], wholes[1:])[0]).all()
    rng = np.random.default_rng(1)
    wholes = np.full((200, 1), 10.0)
    low, high = bootstrap_ratio(rng.binomial(10, 0.3, (200, 1)).astype(float), wholes)
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * math.sqrt(0.3 * 0.7 / 2000), rel=0.15)
