"""The place of the largest number, as torch finds it."""

import pytest
import torch

from utils.numbers.argmax import argmax


@pytest.mark.parametrize("count", [1, 300, 4097, 8192, 32000, 49152, 50257, 151936, 65537])
def test_the_first_of_the_largest(count: int) -> None:
    chance = torch.Generator().manual_seed(0)
    numbers = torch.randint(-40, 40, (6, count), generator=chance).float()
    numbers[1] = -torch.inf
    numbers[2, count // 3 :: 7] = torch.nan
    numbers[3] = torch.inf
    numbers[4] = 0.0
    assert torch.equal(argmax(numbers), numbers.argmax(-1))
    assert torch.equal(argmax(numbers[0]), numbers[0].argmax(-1))
    assert torch.equal(argmax(numbers[:, : count // 2 + 1].bfloat16()), numbers[:, : count // 2 + 1].argmax(-1))
    assert argmax(numbers[:0]).shape == (0,)


@pytest.mark.parametrize("format", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_other_numbers(format: torch.dtype) -> None:
    numbers = torch.tensor([[0, 1, 1], [3, 2, 3]]).to(format)
    assert argmax(numbers).tolist() == numbers.int().argmax(-1).tolist()
