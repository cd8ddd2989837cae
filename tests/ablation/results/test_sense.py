"""Rows that no run can have written: which row it is, and that what is just possible is not refused."""

from typing import Any

import pytest

from ablation.results.sense import AMOUNTS, TEXTS, first_wrong_of

GOOD: dict[str, str] = {
    **dict.fromkeys(TEXTS, ""), **dict.fromkeys(AMOUNTS, ""), "turn": "1", "seed": "0", "repeat": "0",
    "method": "speculative", "lossless": "true", "length": "8", "new_tokens": "8", "rounds": "4", "drafted": "6",
    "tested": "5", "accepted": "4",
}  # fmt: skip
POSSIBLE: list[dict[str, Any]] = [
    *({name: "0"} for name in ("decode_s", "wall_s", "tokens_per_s", "speedup", "accepted")),
    *({name: ""} for name in AMOUNTS),
    {"accepted": "5"},
    {"drafted": "5"},
    {"tested": "6"},
    {"new_tokens": "4"},
    {"target_weights": "full"},
    {"target_weights": "int8"},
    {"target_weights": "gptq"},
    {"target_weights": "a" * 40},
    {"lossless": "false", "finish_reason": "context", "divergence_verdict": "tie"},
]
IMPOSSIBLE: list[dict[str, Any]] = [
    *({name: "-1"} for name in AMOUNTS),
    *({name: "inf"} for name in ("decode_s", "speedup")),
    *({name: "x"} for name in (*AMOUNTS, "turn", "seed", "repeat")),
    *({name: ""} for name in ("turn", "seed", "repeat")),
    {"seed": "0.5"},
    {"method": "magic"},
    {"lossless": "maybe"},
    {"finish_reason": "crash"},
    {"divergence_verdict": "fine"},
    {"target_weights": "int3"},
    {"target_weights": "fuller"},
    {"target_weights": "a" * 41},
    {"target_weights": "a b"},
    {"accepted": "6"},
    {"tested": "7"},
    {"accepted": "4", "new_tokens": "3"},
    {"new_tokens": "9"},
]


@pytest.mark.parametrize("change", POSSIBLE, ids=str)
def test_what_may_be_is_not_refused(change: dict[str, Any]) -> None:
    assert first_wrong_of([GOOD, {**GOOD, **change}]) is None


@pytest.mark.parametrize("change", IMPOSSIBLE, ids=str)
def test_what_cannot_be_is_refused_by_its_row_and_name(change: dict[str, Any]) -> None:
    found = first_wrong_of([GOOD, {**GOOD, **change}, GOOD])
    assert found is not None and found[0] == 1
    assert next(iter(change)) in found[1] and str(next(iter(change.values()))) in found[1]


def test_the_first_of_several_is_told() -> None:
    found = first_wrong_of([GOOD, GOOD, {**GOOD, "speedup": "-2"}, {**GOOD, "speedup": "-3"}])
    assert found is not None and found[0] == 2 and "-2" in found[1]
