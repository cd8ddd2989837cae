"""Weights in 8 bits with a step for each group of 32 inputs, as GGUF's Q8_0 has them, by products of 4 bits."""

import torch
from torch import Tensor

from sampling.forward.cpp.vnni import Grid, VnniLinear, vnni_kernel
from sampling.forward.kernels.int4 import INNER, divides, widened
from sampling.forward.kernels.int8 import fine_int8
from sampling.forward.kernels.linear import Arithmetic, Kernel, Prepared, Product, QuantisedLinear
from sampling.forward.kernels.quantisation_scales import GROUP, find_levels, in_levels, in_slices

_HIGHEST = 127
_FIRST = 4  # rows that are looked at first: most weights that lie on no grid show it there
_MIDDLE = 8
_HIGH = 16


def _twice(x: Tensor) -> Prepared:
    short = x.to(torch.bfloat16)
    return (torch.cat([short, short], dim=1),)


class GroupedInt8Linear(QuantisedLinear):
    """Weights on a Q8_0 grid: 8 bits, and one step for each output and group of 32 inputs.

    A level q of 8 bits is 16 high + low with high from -8 to 7 and low from 0 to 15, so that its products are those
    in 4 bits of twice the inputs, [x, x] on [high, low], with steps 16 d and d: twice the multiplications. Levels are
    exact; the steps, the input and the result are rounded to bfloat16, and no row of the input depends on another.
    """

    arithmetic = Arithmetic("int8, groups", _twice, widened)

    def __init__(self, levels: Tensor, steps: Tensor, bias: Tensor | None = None) -> None:
        """levels: `[out, in]` in int8, which `divides`; steps: `[out, groups]`."""
        (self._packed,) = in_slices(levels, _packed)
        step = steps.to(torch.bfloat16)
        # The products count levels from -8, where the high half begins; the low half begins at 0.
        grid = [torch.cat([_HIGH * step, step], dim=1), torch.cat([torch.zeros_like(step), _MIDDLE * step], dim=1)]
        self._grid = torch.stack(grid, dim=-1).transpose(0, 1).contiguous()
        self._inputs = levels.shape[1]
        self.added = None if bias is None else bias.detach().float()

    def with_kernel(self, kernel: Kernel) -> Product:
        high, low = (self.product(unit).float() for unit in torch.eye(2 * self._inputs, dtype=torch.bfloat16).chunk(2))
        step = self._grid[len(self._grid) // 2 :, :, 0].float().repeat_interleave(GROUP, 0)
        levels = _HIGH * (high / (_HIGH * step)).round_() + (low / step).round_()  # results are rounded, levels are not
        return kernel((levels.nan_to_num_() * step).T.contiguous(), self.added)

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self._packed, GROUP, self._grid)
        return y


def grouped_or_fine(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Products that keep the levels of a Q8_0 file; of weights on no such grid, those with one scale an output."""
    grid = on_grid(weight.detach()) if weight.shape[1] % GROUP == 0 else None
    if grid is not None and (own := vnni_kernel(8, True, weight)) is not None:
        return VnniLinear(own, [Grid.signed(*grid)], bias)
    return fine_int8(weight, bias) if grid is None or not divides(weight) else GroupedInt8Linear(*grid, bias)


def on_grid(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Levels `[out, in]` in int8 and steps `[out, groups]` of weights `[out, in]` that lie on a Q8_0 grid.

    None where any group does not. A group's step is the part of its largest value whose multiples are all of its
    values: a 127th in files that llama.cpp wrote. in must divide into groups.
    """
    if _in_groups(weight[:_FIRST])[2].any():
        return None
    levels, steps, off = in_slices(weight, _in_groups)
    return None if off.any() else (levels, steps)


def _in_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    groups = weight.float().unflatten(1, (-1, GROUP))
    largest = groups.abs().amax(-1, keepdim=True)
    parts, off = find_levels(groups, largest, _HIGHEST)
    levels = in_levels(groups, largest, parts).round_().to(torch.int8)
    return levels.flatten(1), (largest / parts).squeeze(-1), off


def _packed(levels: Tensor) -> tuple[Tensor]:
    """High and low halves of the levels, side by side, counted from 0, in the layout of the products."""
    wide = levels.to(torch.int32)
    high = wide >> 4  # rounds down, so that the low half is 0 or more
    halves = torch.cat([high + _MIDDLE, wide - _HIGH * high], dim=1)
    return (torch.ops.aten._convert_weight_to_int4pack_for_cpu(halves, INNER),)
