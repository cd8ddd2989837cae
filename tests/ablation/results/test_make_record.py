"""What a record says beside what was counted: reads of a token against what the memory gives."""

from types import SimpleNamespace
from typing import Any

import pytest

from ablation.results.make_record import _roofline
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from utils.events import Acceptance, WholeAnswer


def roofline(metrics: RunMetrics, method: str = "target", a_token: float | None = 2e6, **values: Any) -> dict[str, Any]:
    """Where a token reads two megabytes and the memory gives twenty a second."""
    traffic: Any = SimpleNamespace(a_token=lambda prompt, tokens_by_round: a_token)
    return _roofline(traffic, metrics, method, {**Settings(), **values}, lambda: 20e6)


def test_the_share_is_what_was_read_a_second_of_what_the_memory_gives() -> None:
    five_a_second = RunMetrics(output_ids=[1] * 10, rounds=10, verify_s=2.0)
    assert roofline(five_a_second) == {"bytes_per_token": 2e6, "roofline_share": pytest.approx(0.5)}


def test_it_is_not_told_where_it_is_not_known() -> None:
    run = RunMetrics(output_ids=[1] * 10, rounds=10, verify_s=2.0)
    assert roofline(RunMetrics()) == roofline(run, a_token=None) == roofline(run, cache=False) == {}
    assert roofline(run, "drafter") == {}, "of another model"
    assert _roofline(None, run, "target", Settings(), lambda: 20e6) == {}
    run.add(WholeAnswer(3, (1, 2), "stop", 1.0, 2.0, 1, Acceptance()))
    assert roofline(run) == {}, "nobody knows an engine's rounds"
