import pytest
import torch

from sampling.measure import divergence
from sampling.measure.divergence import first_difference, judge
from tests.tiny_pair import tiny_pair


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
def test_a_tie_is_two_of_the_best(monkeypatch: pytest.MonkeyPatch, logits: dict[int, float], verdict: str) -> None:
    row = torch.zeros(257)
    for token, value in logits.items():
        row[token] = value
    monkeypatch.setattr(divergence, "_row_in_block", lambda *given: row)
    monkeypatch.setattr(divergence, "_row_stepped", lambda *given: row)
    found = judge(tiny_pair().target, [1, 2], [4, 10], [4, 20])
    assert (found.verdict, found.index) == (verdict, 1)


def test_an_output_that_ends_early_is_a_bug() -> None:
    assert judge(tiny_pair().target, [1, 2], [4, 10], [4]).verdict == "BUG"
