import pytest
import torch
from scipy import stats

from utils.numbers.statistics import chi_square_survival, distribution_p_value


@pytest.mark.parametrize(("statistic", "degrees"), [(0.5, 1), (3.84, 1), (30.0, 7), (60.0, 15), (200.0, 15)])
def test_survival_equals_scipy(statistic: float, degrees: int) -> None:
    assert chi_square_survival(statistic, degrees) == pytest.approx(stats.chi2.sf(statistic, degrees), rel=1e-9)


def test_p_value_by_hand() -> None:
    """(60 - 50)^2 / 50 + (25 - 30)^2 / 30 + (15 - 20)^2 / 20 = 4.0833, two degrees."""
    p_value = distribution_p_value({0: 60, 1: 25, 2: 15}, torch.tensor([0.5, 0.3, 0.2]))
    assert p_value == pytest.approx(stats.chi2.sf(100 / 50 + 25 / 30 + 25 / 20, 2), rel=1e-5)


def test_a_token_that_was_never_drawn_was_drawn_no_times() -> None:
    """(60 - 50)^2 / 50 + (0 - 30)^2 / 30 + (40 - 20)^2 / 20: the same whether it is counted as 0 or left out."""
    p = torch.tensor([0.5, 0.3, 0.2])
    left_out = distribution_p_value({0: 60, 2: 40}, p)
    assert left_out == distribution_p_value({0: 60, 1: 0, 2: 40}, p)
    assert left_out == pytest.approx(stats.chi2.sf(100 / 50 + 900 / 30 + 400 / 20, 2), rel=1e-5)


def test_rare_tokens_are_one_cell() -> None:
    """Of 100 draws, 30 tokens of 1 % expect one each: together 30, and 35 were seen."""
    p = torch.tensor([0.7, *[0.01] * 30])
    p_value = distribution_p_value({0: 65, 7: 35}, p)
    assert p_value == pytest.approx(stats.chi2.sf(25 / 70 + 25 / 30, 1), rel=1e-4)


def test_an_excluded_token_cannot_be() -> None:
    assert distribution_p_value({0: 999, 2: 1}, torch.tensor([0.5, 0.5, 0.0])) == 0.0


def test_a_certain_distribution_has_nothing_to_test() -> None:
    assert distribution_p_value({0: 50}, torch.tensor([1.0, 0.0])) == 1.0


def test_p_values_are_uniform_under_the_distribution() -> None:
    """400 tests at 5 % reject 20 on average; more than 45 has a probability below 1e-6."""
    p = torch.softmax(torch.linspace(0, 3, 20), dim=0)
    rng = torch.Generator().manual_seed(0)
    rejected = 0
    for _ in range(400):
        drawn = torch.multinomial(p, 300, replacement=True, generator=rng).bincount(minlength=20)
        rejected += distribution_p_value(dict(enumerate(drawn.tolist())), p) < 0.05
    assert 3 <= rejected <= 45
