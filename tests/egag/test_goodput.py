"""Drafting is turned off for a batch while plain rounds bring more tokens per second, and on again."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

import pytest

from egag.choosing.goodput import Goodput

TEXTS, MEAN = 8, 1.6


def turns(speedup: Callable[[int], float], seed: int = 0, noise: float = 0.0) -> Iterator[tuple[bool, int, float]]:
    """Rounds of a batch: whether it drafted, its tokens, its seconds; a plain one takes a second.

    speedup: of rounds with drafts, by the number of the round.
    """
    chance, goodput, number = Random(seed), Goodput(), 0
    while True:
        drafted = goodput.drafting
        seconds = (MEAN / speedup(number) if drafted else 1.0) * max(0.3, chance.gauss(1.0, noise))
        gained = [_tokens(chance) if drafted else 1 for _ in range(TEXTS)]
        for tokens in gained:
            goodput.learn(drafted, tokens, 1.0 / TEXTS, seconds / TEXTS, TEXTS)
        yield drafted, sum(gained), seconds
        number += 1


def _tokens(chance: Random) -> int:
    tokens = 1
    while chance.random() < 1.0 - 1.0 / MEAN:
        tokens += 1
    return tokens


def speed(speedup: float, rounds: int, noise: float = 0.0, batches: int = 16) -> float:
    """Over plain decoding's, over some batches."""
    played = [one for seed in range(batches) for one in islice(turns(lambda _: speedup, seed, noise), rounds)]
    return sum(tokens for _, tokens, _ in played) / TEXTS / sum(seconds for *_, seconds in played)


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize(("speedup", "least"), [(0.6, 0.82), (0.8, 0.9), (0.95, 0.94), (1.2, 1.12), (2.0, 1.8)])
def test_a_batch_has_nearly_the_better_of_both_speeds(speedup: float, least: float, noise: float) -> None:
    assert speed(speedup, 64, noise) > least


@pytest.mark.parametrize("speedup", [0.6, 0.8, 1.2, 2.0])
def test_what_trials_cost_falls_with_the_length_of_the_run(speedup: float) -> None:
    lost = [max(1.0, speedup) - speed(speedup, rounds, batches=8) for rounds in (32, 128, 384)]
    assert lost[0] > lost[1] > lost[2] and lost[2] < 0.08


def test_both_are_played_in_turn_until_one_is_better_and_that_is_kept_for_a_while() -> None:
    drafted = [one for one, *_ in islice(turns(lambda _: 3.0), 2 + 6 + 32 + 7 + 64)]
    assert [number for number, one in enumerate(drafted) if not one] == [2, 4, 6, 41, 43, 45]


def test_what_differs_little_is_compared_for_longer() -> None:
    goodput, drafted = Goodput(), list[bool]()
    for _ in range(2 + 16):
        drafted.append(goodput.drafting)
        goodput.learn(goodput.drafting, 1.02 if goodput.drafting else 1.0, 1.0, 1.0, 1)
    assert drafted[2:] == [False, True] * 8


def test_drafts_that_begin_to_pay_are_found() -> None:
    drafted = [one for one, *_ in islice(turns(lambda number: 0.5 if number < 100 else 2.0), 400)]
    assert sum(drafted[:100]) < 30 and sum(drafted[-100:]) > 90


def test_drafts_that_no_longer_pay_are_given_up() -> None:
    drafted = [one for one, *_ in islice(turns(lambda number: 2.0 if number < 100 else 0.5), 400)]
    assert sum(drafted[:100]) > 90 and sum(drafted[-100:]) < 20


def test_a_round_of_the_other_kind_tells_nothing() -> None:
    goodput = Goodput()
    for _ in range(100):
        goodput.learn(False, 5, 1.0, 0.1, 1)
    assert goodput.drafting
