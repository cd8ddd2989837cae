"""The largest numbers of a row, as a whole sort finds them."""

import pytest
import torch

from utils.numbers import largest as module
from utils.numbers.largest import largest


@pytest.mark.parametrize("by_numpy", [False, True])
@pytest.mark.parametrize(("size", "count"), [(1, 1), (300, 300), (300, 7), (49152, 256), (49152, 49152), (50257, 1)])
def test_the_largest_numbers_descend(size: int, count: int, by_numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_by_numpy", lambda numbers, count: by_numpy)
    chance = torch.Generator().manual_seed(0)
    numbers = torch.randint(-40, 40, (5, size), generator=chance).float()  # many are equal
    numbers[1] = torch.randn(size, generator=chance)
    numbers[2] = torch.nan
    numbers[3] = -torch.inf
    before = numbers.clone()
    expected = numbers.sort(-1, descending=True).values[:, :count]
    assert torch.equal(largest(numbers, count).nan_to_num(9.0), expected.nan_to_num(9.0))
    assert torch.equal(largest(numbers[0], count), expected[0])
    half = numbers[3:, : size // 2 + 1]  # rows that do not lie one behind the other
    assert torch.equal(largest(half, 1), half.amax(-1, keepdim=True))
    assert torch.equal(numbers.nan_to_num(9.0), before.nan_to_num(9.0))
    assert largest(numbers[:0], count).shape == (0, count)


def test_many_rows_are_shared_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    by_numpy = [module._by_numpy(torch.zeros(rows, 9), 3) for rows in (1, 3, 4, 5, 6, 7, 24)]
    assert by_numpy == [True, True, False, True, True, False, False]
    assert module._by_numpy(torch.zeros(24, 9), 9)
