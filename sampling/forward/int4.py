"""Weights in 4 bits: groups of 32 inputs, each with its step and its lowest value.

Values that already lie on such a grid stay on it. A group of 32 that was de-quantised from Q4_0, Q4_1 or Q4_K is one:
its step is found again from its values, so that nothing is rounded to 4 bits a second time.
"""

from functools import cache

import torch
from torch import Tensor

from sampling.forward.linear import Kernel, Linear

GROUP = 32
_LEVELS = 15
_ON_GRID = 1e-3
_INNER = 1  # how many tiles of k the CPU's layout holds side by side; it takes no other number
_TOLERANCE = 0.02


class Int4Linear:
    """Weights in 4 bits, with a step and a lowest value for each output and group of inputs.

    Its products are torch's in bfloat16, with sums in float32: the input, the steps and the lowest values are rounded
    to bfloat16, and no row of the input depends on another. The inputs must divide into groups of 32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        levels, steps, lowest = on_grid(weight.detach().float())
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.flatten(1), _INNER)
        middle = lowest + (_LEVELS + 1) / 2 * steps  # the products count levels from -8
        self._grid = torch.stack([steps, middle], dim=-1).transpose(0, 1).contiguous().to(torch.bfloat16)
        self._inputs = weight.shape[1]
        self._bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x.to(torch.bfloat16), self._packed, GROUP, self._grid)
        wide = y.to(x.dtype)
        return wide if self._bias is None else wide + self._bias.to(x.dtype)

    def with_kernel(self, kernel: Kernel) -> Linear:
        unit = torch.eye(self._inputs, dtype=torch.bfloat16)
        weight = torch.ops.aten._weight_int4pack_mm_for_cpu(unit, self._packed, GROUP, self._grid).T
        return kernel(weight.float().contiguous(), self._bias)


@cache
def runs() -> bool:
    """Whether torch has the products for this CPU, and they are right to the rounding of bfloat16."""
    chance = torch.Generator().manual_seed(0)
    steps = torch.randint(0, _LEVELS + 1, (64, 64), generator=chance).float()
    weight, x = steps / _LEVELS - 0.5, torch.randn(3, 64, generator=chance)
    try:
        error = Int4Linear(weight)(x) - x @ weight.T
    except (RuntimeError, AttributeError):
        return False
    return bool(error.std() < _TOLERANCE * weight.shape[1] ** 0.5)


def on_grid(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Levels 0 to 15 `[out, groups, 32]`, steps and lowest values `[out, groups]` of float32 weights `[out, in]`.

    A group's step is the part of its range whose multiples are all of its values. Where there is none it is a
    fifteenth, which rounds. Parts from an eighth on are all: whoever lies on a coarser grid lies on one of these.
    """
    groups = weight.unflatten(1, (-1, GROUP))
    lowest = groups.amin(-1, keepdim=True)
    above, spread = groups - lowest, groups.amax(-1, keepdim=True) - lowest
    parts = torch.full_like(spread, _LEVELS)
    open_ = _off_grid(above, spread, parts)
    for part in range(_LEVELS - 1, _LEVELS // 2, -1):
        if not open_.any():
            break
        here = open_.nonzero(as_tuple=True)
        tried = torch.full_like(spread[here], part)
        fits = ~_off_grid(above[here], spread[here], tried)
        parts[here] = torch.where(fits.unsqueeze(-1), tried, parts[here])
        open_[here] = ~fits
    levels = _levels(above, spread, parts).round_().to(torch.int32)
    return levels, (spread / parts).squeeze(-1), lowest.squeeze(-1)


def _levels(above: Tensor, spread: Tensor, parts: Tensor) -> Tensor:
    return above * (parts / spread.clamp(min=torch.finfo(spread.dtype).tiny))


def _off_grid(above: Tensor, spread: Tensor, parts: Tensor) -> Tensor:
    levels = _levels(above, spread, parts)
    return (levels - levels.round()).abs_().amax(-1) > _ON_GRID
