"""Weights in 4 bits: groups of 32 inputs, each with its step and its lowest value.

Values that already lie on such a grid stay on it. A group of 32 that was de-quantised from Q4_0, Q4_1 or Q4_K is one:
its step is found again from its values, so that nothing is rounded to 4 bits a second time.
"""

from functools import cache

import torch
from torch import Tensor

from sampling.forward.cpp.vnni import Grid, VnniLinear, vnni_kernel
from sampling.forward.kernels.linear import Arithmetic, Kernel, Prepared, Product, QuantisedLinear
from sampling.forward.kernels.quantisation_scales import GROUP, SLICE, find_levels, in_levels, in_slices

INNER = 1  # how many tiles of k the CPU's layout holds side by side; it takes no other number
_LEVELS = 15
OUTPUTS = 16
_TOLERANCE = 0.02
_PRODUCT = torch.ops.aten._weight_int4pack_mm_for_cpu.default


def _halved(x: Tensor) -> Prepared:
    return (x.to(torch.bfloat16),)


def widened(raw: Tensor, rest: Prepared, bias: Tensor | None) -> Tensor:
    """Leaving a product in bfloat16: see `Arithmetic`."""
    y = raw.float()
    return y if bias is None else y + bias


class Int4Linear(QuantisedLinear):
    """Weights in 4 bits, with a step and a lowest value for each output and group of inputs.

    Its products are torch's in bfloat16, with sums in float32: the input, the steps and the lowest values are rounded
    to bfloat16, and no row of the input depends on another. The inputs must divide into groups of 32.
    """

    arithmetic = Arithmetic("int4", _halved, widened)

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed, steps, lowest = in_slices(weight.detach(), _packed)
        self._grid = as_products_take(steps, lowest)
        self._inputs = weight.shape[1]
        self.added = None if bias is None else bias.detach().float()

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        y: Tensor = _PRODUCT(x, self._packed, GROUP, self._grid)
        return y

    def with_kernel(self, kernel: Kernel) -> Product:
        unit = torch.eye(self._inputs, dtype=torch.bfloat16)
        return kernel(self.product(unit).T.float().contiguous(), self.added)


def int4_product(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Products of bytes where the CPU has them, else torch's."""
    own = vnni_kernel(4, True, weight)
    if own is None:
        return Int4Linear(weight, bias)
    return VnniLinear(own, map(_grid_of, weight.detach().split(SLICE)), bias)


def _grid_of(weight: Tensor) -> Grid:
    levels, steps, lowest = on_grid(weight.float())
    return Grid(levels.flatten(1).to(torch.uint8), steps, lowest)


def divides(weight: Tensor) -> bool:
    """Whether the products take a matrix of this shape `[out, in]`: outputs by 16, and inputs by the group."""
    outputs, inputs = weight.shape
    return outputs % OUTPUTS == 0 and inputs % GROUP == 0


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
    fifteenth, which rounds.
    """
    groups = weight.unflatten(1, (-1, GROUP))
    lowest = groups.amin(-1, keepdim=True)
    above, spread = groups - lowest, groups.amax(-1, keepdim=True) - lowest
    parts, _ = find_levels(above, spread, _LEVELS)
    levels = in_levels(above, spread, parts).round_().to(torch.int32)
    return levels, (spread / parts).squeeze(-1), lowest.squeeze(-1)


def as_products_take(steps: Tensor, lowest: Tensor) -> Tensor:
    """Steps and middles `[groups, out, 2]` in bfloat16 of steps and lowest values: products count levels from -8."""
    middle = lowest + (_LEVELS + 1) / 2 * steps
    return torch.stack([steps, middle], dim=-1).transpose(0, 1).contiguous().to(torch.bfloat16)


def _packed(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    levels, steps, lowest = on_grid(weight.float())
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels.flatten(1), INNER), steps, lowest
