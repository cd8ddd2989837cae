from functools import partial

import pytest
import torch

from sampling.forward.noise_floor import NoiseFloor, noise_floor
from sampling.forward.runner import Runner
from sampling.measure.divergence import first_difference, judge
from tests.tiny import tiny_pair


def test_first_difference() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2


@pytest.mark.parametrize(
    ("logits", "verdict"),
    [
        ({10: 5.0, 20: 5.0}, "tie"),
        ({10: 5.0, 15: 5.0, 20: 5.0}, "tie"),  # three tokens share the maximum, as bf16 logits often do
        ({10: 5.0, 20: 4.9}, "BUG"),
        ({10: 5.0, 20: 5.0, 30: 5.1}, "BUG"),  # equal to each other, and neither is the best
    ],
)
def test_a_tie_is_two_of_the_best(logits: dict[int, float], verdict: str) -> None:
    row = torch.zeros(257)
    for token, value in logits.items():
        row[token] = value
    found = judge(lambda said: NoiseFloor(row, row, 1e-7), [4, 10], [4, 20])
    assert (found.verdict, found.index) == (verdict, 1)
    assert judge(lambda said: NoiseFloor(row, row, 1e-7), [4, 10], [4, 20], batch_invariant=True).verdict == "BUG"


@pytest.mark.parametrize(
    ("behind", "moved", "eps", "verdict"),
    [
        (0.19, 0.1, 0.0, "tie"),
        (0.21, 0.1, 0.0, "BUG"),
        (0.9, 0.0, 0.1, "tie"),  # the larger logit is 5: its neighbour lies 0.5 away
        (1.1, 0.0, 0.1, "BUG"),
        (0.9, 0.1, 0.1, "tie"),  # the larger of the two counts, and not their sum
        (1.15, 0.1, 0.1, "BUG"),
    ],
)
def test_a_tie_is_within_twice_what_can_be_resolved(behind: float, moved: float, eps: float, verdict: str) -> None:
    """Token 20 stands behind token 10 in both ways to compute the row, between which its logit moves."""
    block, stepped = torch.zeros(30), torch.zeros(30)
    block[10] = stepped[10] = 5.0
    block[20], stepped[20] = 5.0 - behind, 5.0 - behind - moved
    found = judge(lambda said: NoiseFloor(block, stepped, eps), [4, 10], [4, 20])
    assert found.verdict == verdict
    assert found.margin == pytest.approx(behind) and found.noise == pytest.approx(moved, abs=1e-6)


def test_an_output_that_ends_early_is_a_bug() -> None:
    assert judge(partial(noise_floor, tiny_pair().target, [1, 2]), [4, 10], [4]).verdict == "BUG"


def test_the_row_behind_a_text_is_computed_in_two_ways_that_agree() -> None:
    target, said = tiny_pair().target, list(range(5, 25))
    found = noise_floor(target, [1, 2], said)
    whole = prefill_row(target.another(), [1, 2, *said])
    torch.testing.assert_close(found.block, whole, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.stepped, whole, atol=1e-4, rtol=1e-4)
    assert found.eps == torch.finfo(torch.float32).eps


def prefill_row(runner: Runner, tokens: list[int]) -> torch.Tensor:
    return runner.forward(tokens, rows=1).logits[0].float()
