"""The simulation of coverage: its truths, its methods against others' code, and a method that is too narrow."""

import numpy as np
import pytest

from scripts import interval_coverage as coverage
from scripts.interval_coverage import Population, bca, covered, main, medians, smoothed_median, students_t
from utils.numbers.intervals import Ends, Numbers, median_interval

RNG = np.random.default_rng(3)


def normal(bandwidth: float = 0.5) -> Population:
    return Population(np.linspace(-1.0, 1.0, 21), np.ones(21), 0.0, bandwidth)


def test_the_median_of_a_smoothed_run_is_that_of_many_draws() -> None:
    values = np.array([0.0, 0.1, 0.2, 0.9, 3.0])
    drawn, _ = Population(values, np.ones(5), 0.0, 0.3).drawn(RNG, 200_000, 1)
    assert smoothed_median(values, 0.3) == pytest.approx(float(np.median(drawn)), abs=0.01)


def test_columns_have_the_interval_of_each_sample() -> None:
    parts = RNG.standard_normal((12, 5))
    low, high = medians(parts, np.ones_like(parts))
    assert [(a, b) for a, b in zip(low, high, strict=True)] == [median_interval(list(one))[1:] for one in parts.T]


def test_bca_and_students_t_are_those_of_scipy() -> None:
    from scipy.stats import bootstrap, t

    parts, ones = RNG.gamma(2.0, 1.0, (25, 1)), np.ones((25, 1))
    theirs = bootstrap((parts[:, 0],), np.mean, n_resamples=20_000, method="BCa", rng=1).confidence_interval
    low, high = bca(parts, ones)
    assert (low[0], high[0]) == pytest.approx((theirs.low, theirs.high), rel=0.03)
    mean, error = parts.mean(), parts.std(ddof=1) / 5.0
    low, high = students_t(parts, ones)
    assert (low[0], high[0]) == pytest.approx(t.interval(0.95, 24, mean, error))


def test_a_method_that_is_too_narrow_is_seen() -> None:
    def narrow(parts: Numbers, wholes: Numbers) -> Ends:
        low, high = students_t(parts, wholes)
        middle = (low + high) / 2.0
        return middle - (high - low) / 6.0, middle + (high - low) / 6.0

    parts, wholes = normal().drawn(RNG, 12, 2000)
    right, _ = covered(normal(), students_t, parts, wholes)
    wrong, _ = covered(normal(), narrow, parts, wholes)
    assert right == pytest.approx(0.95, abs=0.02) and wrong < 0.6


def test_samples_without_an_interval_do_not_count() -> None:
    def half(parts: Numbers, wholes: Numbers) -> Ends:
        low = np.where(np.arange(parts.shape[1]) % 2, np.nan, -9.0)
        return low, low + 18.0

    parts, wholes = normal().drawn(RNG, 8, 10)
    assert covered(normal(), half, parts, wholes) == (1.0, 18.0)


def test_the_table_has_a_line_a_method(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rolls = Population(RNG.binomial(10, 0.4, 30).astype(float), np.full(30, 10.0), 0.4)
    monkeypatch.setattr(coverage, "speedups", lambda: iter([("median of speedups", normal())]))
    monkeypatch.setattr(coverage, "counts", lambda: iter([("alpha", rolls)]))
    main(samples=20, seed=1)
    lines = capsys.readouterr().out.splitlines()
    assert sum("median of speedups" in line for line in lines) == 2 and sum("alpha" in line for line in lines) == 5
    assert [line.split()[-1] for line in lines if "order statistics" in line or "Korn" in line] == ["yes", "yes"]
