"""Why a method was slow, against numbers worked out by hand."""

from types import SimpleNamespace

import pytest

from sampling.measure.metrics import RunMetrics
from sampling.measure.round_cost import RoundCost, round_cost


def run(draft_ms: float, verify_ms: float, other_ms: float, tokens: float, drafted: int = 40) -> SimpleNamespace:
    times = {"draft_ms": draft_ms, "verify_ms": verify_ms, "other_ms": other_ms}
    return SimpleNamespace(rounds=10, drafted=drafted, tokens_per_round=tokens, **times)


AR = run(0.0, 40.0, 0.4, 1.0, drafted=0)


def test_costs_are_in_forwards_of_plain_autoregression() -> None:
    """4 drafts in 9.6 ms and 5 rows in 52.4 ms, where one row takes 40: a round of 62.8 ms against AR's 40.4."""
    found = round_cost(run(9.6, 52.4, 0.8, 1.22), AR)
    assert found is not None
    assert (found.rows, found.draft, found.verify) == pytest.approx((5.0, 0.24, 1.31))
    assert found.break_even == pytest.approx(62.8 / 40.4)
    assert found.speedup == pytest.approx(1.22 * 40.4 / 62.8)
    assert str(found) == (
        "drafts cost 24% of AR's forward a round, verifying 5.0 rows 1.31 of it; "
        "break-even needs 1.55 tokens a round, it had 1.22"
    )


@pytest.mark.parametrize(
    ("cost", "break_even", "speedup"),
    [
        (RoundCost(1.0, 0.0, 1.0, 0.0, 1.0, 1.0), 1.0, 1.0),
        (RoundCost(5.0, 0.4, 1.0, 0.0, 1.0, 2.8), 1.4, 2.0),  # gamma c = 0.4, verifying for free: the paper's formula
        (RoundCost(5.0, 0.0, 2.0, 0.5, 1.25, 1.0), 2.0, 0.5),
    ],
)
def test_break_even(cost: RoundCost, break_even: float, speedup: float) -> None:
    assert (cost.break_even, cost.speedup) == pytest.approx((break_even, speedup))


def test_a_dear_rest_is_told() -> None:
    assert "of it, the rest 0.30 more than AR's; break-even" in str(RoundCost(2.0, 0.1, 1.0, 0.35, 1.05, 1.0))


def test_the_speedup_is_the_one_of_the_metrics() -> None:
    reference = RunMetrics(output_ids=[1] * 4, rounds=4, verify_s=0.4, other_s=0.1)
    sd = RunMetrics(output_ids=[1] * 4, rounds=2, verify_s=0.3, draft_s=0.2, other_s=0.1, drafted=6)
    found = round_cost(sd, reference)
    assert found is not None and sd.tokens_per_s is not None and reference.tokens_per_s is not None
    assert found.speedup == pytest.approx(sd.tokens_per_s / reference.tokens_per_s)


def test_what_is_not_known_has_no_cost() -> None:
    assert round_cost(RunMetrics(), RunMetrics()) is None
    assert round_cost(RunMetrics(output_ids=[1], rounds=1, verify_s=0.1), RunMetrics()) is None
