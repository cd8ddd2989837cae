"""scripts/draw_book.py: figures from formulas, records and the rules themselves."""

import math

import pytest

from ablation.book_figures.common import forward_ms, growth
from ablation.book_figures.practice import logits_of, rounds_gamma
from ablation.growth import Growth
from egag.egag import EntropyGamma
from egag.entropy import entropy
from scripts.verify_growth import RECORD


@pytest.mark.parametrize("wanted", [0.0, 0.01, 0.125, 0.5, 0.75, 0.999, 1.0])
def test_logits_have_the_entropy_that_was_asked_for_or_a_little_less(wanted: float) -> None:
    found = entropy(logits_of(wanted)).item() / math.log(2)
    assert wanted - 2e-6 <= found <= max(wanted, 1e-9)


def test_the_rule_is_asked_as_the_loop_asks_it() -> None:
    rule = EntropyGamma(1, 8, 0.0)
    assert [rounds_gamma(rule, logits_of(h)) for h in (0.0, 0.124, 0.125, 0.126, 0.5, 0.99, 1.0)] == [
        8,
        7,
        7,
        6,
        4,
        1,
        1,
    ]


def test_what_a_forward_costs_is_what_the_benchmark_recorded() -> None:
    points = forward_ms()
    assert points == Growth.read(RECORD).ms["full"]
    assert growth(points, 5) == points[5] / points[1]
    assert growth(points, 6) == pytest.approx((points[5] + points[7]) / 2 / points[1])
