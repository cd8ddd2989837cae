"""What a test would find: by hand, by scipy, and by drawing."""

import numpy as np
import pytest
import torch
from scipy import stats

from utils.numbers.power import detectable, found, needed
from utils.numbers.statistics import distribution_p_value

LEVEL, RUNS = 0.01, 400


def test_the_noncentrality_is_the_one_that_scipy_finds_with_this_power() -> None:
    limit = stats.chi2.isf(LEVEL, 7)
    assert stats.ncx2.sf(limit, 7, needed(7, LEVEL, 0.95)) == pytest.approx(0.95, abs=1e-9)
    assert found(7, LEVEL, needed(7, LEVEL, 0.95)) == pytest.approx(0.95, abs=1e-9)
    assert found(7, LEVEL, 0.0) == pytest.approx(LEVEL) and found(0, LEVEL, 50.0) == 0.0


def test_without_draws_nothing_is_found() -> None:
    assert detectable(0, 100, LEVEL, 0.95) is None and detectable(5, 0, LEVEL, 0.95) is None
    assert detectable(15, 3, LEVEL, 0.95) is None
    assert detectable(15, 5000, 0.001, 0.95) == pytest.approx(0.0473, abs=1e-4)


@pytest.mark.parametrize("half", [1, 4])
def test_what_is_promised_is_found(half: int) -> None:
    """The hardest difference of its size, between two halves of the mass, is found about as often as was said."""
    draws, p = 2000, np.full(2 * half, 0.5 / half)
    distance = detectable(2 * half - 1, draws, LEVEL, 0.95)
    assert distance is not None
    moved = p + np.repeat([distance / half, -distance / half], half)
    rng, expected = np.random.default_rng(0), torch.tensor(p)
    noticed = 0
    for counts in rng.multinomial(draws, moved, RUNS):
        noticed += distribution_p_value(dict(enumerate(counts.tolist())), expected) < LEVEL
    assert 0.91 < noticed / RUNS < 0.985
    false = sum(
        distribution_p_value(dict(enumerate(counts.tolist())), expected) < LEVEL
        for counts in rng.multinomial(draws, p, RUNS)
    )
    assert false < 16
