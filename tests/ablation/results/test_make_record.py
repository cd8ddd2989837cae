"""What a record says beside what was counted: reads of a token against what the memory gives."""

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ablation.results.make_record import _ledger, _roofline, ledger_of
from sampling.measure.ledger import Ledger
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from tests.ablation.synthetic import record
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


def test_parts_of_a_token_are_in_milliseconds() -> None:
    found = Ledger(0.032, 0.010, 0.008, 0.0003, 0.0005, 0.0404, 5.0, 1.2, 0.3, 0.4)
    guessed = replace(found, draft=0.010)
    comparison: Any = SimpleNamespace(ledger=lambda name: found, predicted=lambda name: guessed)
    told = _ledger(comparison, "speculative")
    assert {name: told[name] for name in told if name.startswith("token_")} == pytest.approx(
        {
            "token_verify_ms": 32,
            "token_growth_ms": 10,
            "token_draft_ms": 8,
            "token_judging_ms": 0.3,
            "token_rest_ms": 0.5,
        }
    )
    assert told["predicted_token_ms"] == pytest.approx(52.8)
    assert told["break_even_tokens"] == pytest.approx(1.2 * 50.8 / 40.4) and told["break_even_alpha"] == 0.4
    nothing: Any = SimpleNamespace(ledger=lambda name: None, predicted=lambda name: None)
    assert _ledger(nothing, "speculative") == {}


def test_a_record_knows_the_ledger_that_its_columns_came_from() -> None:
    found = Ledger(0.032, 0.010, 0.008, 0.0003, 0.0005, 0.0404, 5.0, 1.2, 0.3, 0.4)
    comparison: Any = SimpleNamespace(ledger=lambda name: found, predicted=lambda name: None)
    columns = {**_ledger(comparison, "speculative"), "rounds": 10, "drafted": 40, "tokens_per_round": 1.2, "alpha": 0.3}
    again = ledger_of(record(**columns))
    assert again is not None and asdict(again) == pytest.approx(asdict(found))
    assert ledger_of(record(**{**columns, "drafted": 0})).rows == 1.0  # type: ignore[union-attr]
    assert ledger_of(record(**{**columns, "token_rest_ms": None})) is None
