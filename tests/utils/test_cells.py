"""Cells of a vocabulary: which tokens stand alone, and two sets of draws compared in them."""

import numpy as np
import pytest
import torch
from scipy import stats

from utils.numbers.cells import Cells, alike
from utils.numbers.statistics import ChiSquare


def test_likely_tokens_stand_alone_and_rare_ones_with_their_rank() -> None:
    p = torch.tensor([0.02, 0.4, 0.02, 0.3, *[0.02] * 6, *[0.0] * 3, 0.14])
    p = p / p.sum()
    cells = Cells.of(p, 200)
    assert cells.index[1] == 0 and cells.index[3] == 1 and cells.index[13] == 2
    assert cells.index[0] == cells.index[2] == 3 and int(cells.index.max()) == 4
    masses = cells.masses(p)
    assert sum(masses) == pytest.approx(1.0) and all(mass * 200 >= 10 for mass in masses)
    assert cells.counted({1: 5, 0: 2, 12: 3, 9: 1}) == [5, 0, 0, 2, 4]


@pytest.mark.parametrize(("size", "total"), [(1, 100), (5, 9), (300, 120), (50_000, 1000), (50_000, 100_000)])
def test_every_cell_has_draws_enough(size: int, total: int) -> None:
    p = torch.rand(size, generator=torch.Generator().manual_seed(size)).double() ** 4
    p = p / p.sum()
    masses = Cells.of(p, total).masses(p)
    assert len(masses) <= 16 and (len(masses) == 1 or min(masses) * total >= 9.99)
    assert len(masses) > 8 or total < 200 or size == 1


def test_a_flat_tail_that_is_tilted_is_seen() -> None:
    """No token alone has ten draws; by rank the tail has cells."""
    tilted = np.linspace(2.0, 1.0, 400)
    p = torch.tensor(tilted / tilted.sum())
    counts = np.random.default_rng(0).multinomial(4000, np.full(400, 1 / 400))
    cells = Cells.of(p, 4000)
    expected = [mass * 4000 for mass in cells.masses(p)]
    assert ChiSquare.of(cells.counted(dict(enumerate(counts.tolist()))), expected).p_value < 1e-6


def test_two_sets_of_draws_are_compared_as_scipy_compares_them() -> None:
    first, second = {0: 60, 1: 25, 5: 40}, {0: 90, 1: 70, 5: 65}
    expected = stats.chi2_contingency([[60, 25, 40], [90, 70, 65]], correction=False)
    told = alike(first, second, torch.tensor([0.5, 0.1, 0.0, 0.0, 0.0, 0.4]))
    assert told.statistic == pytest.approx(expected.statistic) and told.degrees == expected.dof == 2
    assert told.p_value == pytest.approx(expected.pvalue)


def test_what_only_one_set_has_is_seen_however_rare_each_token_is() -> None:
    first = {0: 150, **dict.fromkeys(range(10, 60), 1)}
    second = {0: 200}
    p = torch.zeros(100)
    p[0] = 1.0
    assert alike(first, second, p).p_value < 1e-9


def test_two_sets_of_one_law_are_alike_as_often_as_the_level_says() -> None:
    rng, p = np.random.default_rng(1), np.linspace(3.0, 0.1, 80)
    p /= p.sum()
    alarms = 0
    for _ in range(300):
        first, second = (dict(enumerate(rng.multinomial(400, p).tolist())) for _ in range(2))
        alarms += alike(first, second, torch.tensor(p)).p_value < 0.05
    assert alarms < 32
