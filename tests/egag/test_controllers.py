"""Draft-length rules as pure functions of logits and verdicts."""

import math

import pytest
import torch

from egag.draft_distribution import LogitsDistribution
from egag.egag import EntropyGamma
from egag.entropy import entropy
from egag.feedback.heuristic import HeuristicGamma
from egag.length_rule import FixedGamma
from egag.stopping.confidence import ConfidenceGamma
from utils.events import Round


def logits_of_entropy(share: float, size: int = 64) -> torch.Tensor:
    """Logits whose normalised entropy H / ln V is `share`, by bisection on the temperature."""
    base = torch.linspace(0, 10, size)
    low, high = 1e-3, 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if entropy(base / middle).item() / math.log(size) < share else (low, middle)
    return base / low


def judged(drafted: int, accepted: int) -> Round:
    flat = (0.5,) * drafted
    return Round(0, 9, 4, tuple(range(drafted)), None, flat, flat, tuple(range(accepted)), 1, None, 64)


def rounds(rule: EntropyGamma, *shares: float) -> list[int]:
    chosen = []
    for share in shares:
        rule.before(0, LogitsDistribution(logits_of_entropy(share)))
        chosen.append(rule.gamma)
    return chosen


def test_entropy_in_nats() -> None:
    assert entropy(torch.zeros(8)).item() == pytest.approx(math.log(8))
    assert entropy(torch.tensor([0.0, math.log(3.0)])).item() == pytest.approx(
        -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    )


@pytest.mark.parametrize(("share", "gamma"), [(0.45, 3), (0.01, 5), (0.99, 1), (0.6, 2)])
def test_egag_floor_and_clamp(share: float, gamma: int) -> None:
    assert rounds(EntropyGamma(1, 6, 0.0), share) == [gamma]


def test_egag_smooths_with_an_ema() -> None:
    """gamma_max 6, beta 0.5: raw 5, 1, 1 -> s = 5, 3, 2."""
    assert rounds(EntropyGamma(1, 6, 0.5), 0.01, 0.99, 0.99) == [5, 3, 2]


def test_egag_begins_anew() -> None:
    rule = EntropyGamma(1, 6, 0.9)
    rounds(rule, 0.01, 0.01)
    rule.begin()
    assert rounds(rule, 0.99) == [1]


@pytest.mark.parametrize(
    ("changed", "shares"), [((2, 6, 0.0), (0.99,)), ((1, 8, 0.0), (0.01,)), ((1, 6, 0.9), (0.01, 0.99))]
)
def test_each_egag_parameter_changes_something(changed: tuple[int, int, float], shares: tuple[float, ...]) -> None:
    assert rounds(EntropyGamma(*changed), *shares) != rounds(EntropyGamma(1, 6, 0.0), *shares)


def test_egag_asks_once_a_round() -> None:
    rule = EntropyGamma(1, 6, 0.0)
    rule.before(0, LogitsDistribution(logits_of_entropy(0.45)))
    assert [rule.before(n, LogitsDistribution(logits_of_entropy(0.99))) for n in (1, 2, 3)] == [True, True, False]


def test_a_drafter_without_a_distribution_drafts_to_egags_limit() -> None:
    rule = EntropyGamma(1, 4, 0.0)
    assert [rule.before(n, None) for n in range(5)] == [True] * 4 + [False]


def test_the_heuristic_schedule() -> None:
    rule = HeuristicGamma(2)
    seen = []
    for drafted, accepted in ((2, 2), (4, 4), (6, 1), (5, 0), (0, 0)):
        rule.update(judged(drafted, accepted))
        seen.append(rule.gamma)
    assert seen == [4, 6, 5, 4, 4]
    for _ in range(9):
        rule.update(judged(1, 0))
    assert rule.gamma == 1


def test_confidence_keeps_the_unsure_token_and_stops() -> None:
    rule = ConfidenceGamma(0.4, 20)
    sure, unsure = LogitsDistribution(torch.tensor([0.0, 3.0])), LogitsDistribution(torch.tensor([0.0, 0.0, 0.0]))
    assert rule.after(1, sure, torch.tensor(1))
    assert not rule.after(2, unsure, torch.tensor(1))
    assert not rule.after(20, sure, torch.tensor(1))
    assert not ConfidenceGamma(0.99, 20).after(1, sure, torch.tensor(1))


def test_fixed_gamma() -> None:
    assert [FixedGamma(2).before(n, None) for n in range(3)] == [True, True, False]
    assert not FixedGamma(0).before(0, None)


def test_a_rule_of_no_drafts_starts_no_tree() -> None:
    assert not FixedGamma(0).tree_growth.start_tree(None) and FixedGamma(1).tree_growth.start_tree(None)
