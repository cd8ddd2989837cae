"""Finding the grid that de-quantised weights lie on, so that they need not be rounded a second time; rows in fp8."""

from collections.abc import Callable

import torch
from torch import Tensor

from sampling.forward.kernels.linear import Arithmetic, with_bias

FP8_TYPE = torch.float8_e4m3fn
FP8_LARGEST = torch.finfo(FP8_TYPE).max
FP8_LOWEST = 1e-12
"""Of the largest number of a row, as far as its scale goes."""
GROUP = 32
"""How many inputs share a step, in this program as in the blocks of a GGUF file."""

_ON_GRID = 1e-3
SLICE = 4096
"""Outputs that are rounded at once."""


def in_slices(weight: Tensor, convert: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """What `convert` makes of weights `[out, in]`, some outputs at a time, joined along the first dimension.

    What is between, in float32, is then never in memory for all outputs at once, of which some matrices have 100,000.
    """
    if len(weight) <= SLICE:
        return convert(weight)
    return tuple(torch.cat(parts) for parts in zip(*map(convert, weight.split(SLICE)), strict=True))


def find_levels(values: Tensor, largest: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Into how many parts to divide the largest of each group, so that all its values are multiples of one.

    values: `[..., 32]`; largest: `[..., 1]`, in float32. Gives the parts `[..., 1]` and whether there are none
    `[...]`, where they are `most`. From `most` down to its half are tried: coarser grids lie on one of these.
    """
    parts = torch.full_like(largest, most)
    off = _off_grid(values, largest, parts)
    for fewer in range(most - 1, most // 2, -1):
        if not off.any():
            break
        here = off.nonzero(as_tuple=True)
        tried = torch.full_like(largest[here], fewer)
        none = _off_grid(values[here], largest[here], tried)
        parts[here] = torch.where(none.unsqueeze(-1), parts[here], tried)
        off[here] = none
    return parts, off


def in_levels(values: Tensor, largest: Tensor, parts: Tensor) -> Tensor:
    """The values counted in steps of such a part, which need not be whole numbers."""
    return values / largest.clamp(min=torch.finfo(largest.dtype).tiny) * parts


def _off_grid(values: Tensor, largest: Tensor, parts: Tensor) -> Tensor:
    levels = in_levels(values, largest, parts)
    return (levels - levels.round()).abs_().amax(-1) > _ON_GRID


def in_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in e4m3, and the scale `[n, 1]` of each, in float32."""
    wide = x.float()
    scale = wide.abs().amax(dim=1, keepdim=True).clamp(min=FP8_LOWEST) / FP8_LARGEST
    return (wide / scale).to(FP8_TYPE), scale


FP8 = Arithmetic("fp8", in_fp8, with_bias)
"""Rows enter in e4m3 with a scale each, which the product itself takes."""
