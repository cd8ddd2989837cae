"""Draws that were made here, judged: what agrees, what differs, and what could not have been seen."""

from collections import Counter
from typing import Any

import pytest
import torch

from engines.audit.expected import ExpectedRow
from engines.audit.judge import FEWEST, POWER, Group, LawTest, beginnings, judged, of_plain, of_target

P = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0, 0.0], dtype=torch.float64)
WHOLE = torch.tensor([0.3, 0.25, 0.15, 0.1, 0.1, 0.1], dtype=torch.float64)
ROW = ExpectedRow(P, P > 0.0, WHOLE)
CERTAIN = torch.tensor([0.999, 0.001], dtype=torch.float64)


def drawn(p: torch.Tensor, draws: int, seed: int) -> Counter[int]:
    generator = torch.Generator().manual_seed(seed)
    return Counter(torch.multinomial(p, draws, replacement=True, generator=generator).tolist())


def law(p: torch.Tensor, draws: int = 2000, seed: int = 0, row: ExpectedRow = ROW) -> LawTest:
    (test,) = judged([of_target("topk 1 4", "target", 0, 1, [Group(drawn(p, draws, seed), row)])])
    return test


def test_the_law_itself_agrees_and_its_power_is_told() -> None:
    test = law(P)
    assert test.verdict == "agrees" and test.p > 0.01 and test.outside == 0 and test.degrees == 3
    assert test.finds is not None and 0.04 < test.finds < 0.08
    assert test.dropped == pytest.approx(0.2) and test.sees == pytest.approx(1.0)


def test_a_forgotten_processor_differs_and_is_named() -> None:
    test = law(WHOLE)
    assert test.verdict == "DIFFERS" and test.p == 0.0 and test.outside > 300
    assert test.forgotten_p is not None and test.forgotten_p > 0.01
    assert law(torch.tensor([0.3, 0.4, 0.2, 0.1])).forgotten_p == pytest.approx(0.0, abs=1e-9)


def test_a_wrong_law_of_the_right_tokens_differs() -> None:
    moved = torch.tensor([0.32, 0.38, 0.2, 0.1])
    test = law(moved)
    assert test.verdict == "DIFFERS" and test.outside == 0 and 0.0 < test.p < 1e-6
    assert test.distance == pytest.approx(0.08, abs=0.03)


def test_a_token_at_the_edge_is_no_fault() -> None:
    row = ExpectedRow(P, torch.tensor([True, True, True, True, True, False]), None)
    counts = drawn(P, 2000, 3)
    counts[4] += 1
    (test,) = judged([of_target("topk 1 4", "target", 0, 1, [Group(counts, row)])])
    assert test.outside == 0 and test.verdict == "agrees"


def test_what_could_not_be_seen_is_weak() -> None:
    row = ExpectedRow(P, P > 0.0, P)
    assert law(P, row=row).verdict == "weak" and law(P, row=row).sees == pytest.approx(0.01, abs=1e-6)
    few = law(torch.tensor([0.4, 0.3, 0.2, 0.1]), 12, 1, ExpectedRow(P, P > 0.0, None))
    assert few.degrees == 0 and few.finds is None and few.verdict == "weak"


def test_where_one_token_is_nearly_certain_the_test_is_exact() -> None:
    row = ExpectedRow(CERTAIN, CERTAIN > 0.0, None)

    def exact(rare: int) -> float:
        return of_target("x", "target", 0, 1, [Group(Counter({0: 1000 - rare, 1: rare}), row)]).p

    assert exact(1) == pytest.approx(1.0) and exact(6) == pytest.approx(0.0006, abs=3e-4)


def test_later_tokens_are_tested_by_what_came_before() -> None:
    counts = {(0, 1): 60, (0, 2): 40, (3, 1): FEWEST - 1, (5,): 500}
    assert beginnings(counts, 1) == {(): Counter({5: 500, 0: 100, 3: FEWEST - 1})}
    assert beginnings(counts, 2) == {(0,): Counter({1: 60, 2: 40})}
    assert beginnings(counts, 3) == {}


def test_speculation_is_compared_with_plain_decoding_whatever_the_law_is() -> None:
    def answers(p: torch.Tensor, seed: int) -> dict[tuple[int, ...], Group]:
        return {(): Group(drawn(p, 2000, seed), ROW)}

    (same,) = judged([of_plain("x", "mtp", 0, 1, answers(WHOLE, 1), answers(WHOLE, 2))])
    (other,) = judged([of_plain("x", "mtp", 0, 1, answers(WHOLE, 1), answers(P, 2))])
    assert same.verdict == "agrees" and other.verdict == "DIFFERS" and same.draws == 1000


def test_all_tests_together_raise_a_false_alarm_rarely() -> None:
    """Of 40 audits with 25 tests each at 1 %, more than four alarms would have a chance of 1e-4."""
    alarms = 0
    for audit in range(40):
        tests = [of_target("x", "target", 0, 1, [Group(drawn(P, 300, 25 * audit + n), ROW)]) for n in range(25)]
        alarms += any(test.verdict == "DIFFERS" for test in judged(tests))
    assert alarms <= 4


def test_the_power_holds_at_the_corrected_level() -> None:
    tests: list[Any] = [of_target("x", "target", 0, 1, [Group(drawn(P, 500, n), ROW)]) for n in range(20)]
    alone, many = next(judged(tests[:1])), next(judged(tests))
    assert alone.finds is not None and many.finds is not None and alone.finds < many.finds
    assert POWER == 0.95
