"""Random numbers that no generator is given for are those of every run: `tests/conftest.py`."""

import random

import pytest
import torch

Drawn = tuple[float, float]


def drawn() -> Drawn:
    return random.random(), float(torch.rand(()))


@pytest.fixture
def by_a_fixture() -> Drawn:
    return drawn()


@pytest.mark.parametrize("time", [1, 2])
def test_a_fixture_and_a_test_draw_the_same_every_time(time: int, by_a_fixture: Drawn) -> None:
    random.seed(0)
    torch.manual_seed(0)
    seeded = drawn()
    assert by_a_fixture == seeded


@pytest.mark.parametrize("time", [1, 2])
def test_a_test_draws_the_same_whatever_was_drawn_before(time: int, by_a_fixture: Drawn) -> None:
    assert drawn() == by_a_fixture
