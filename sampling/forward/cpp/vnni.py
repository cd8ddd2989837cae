"""Products with weights in 4 and 8 bits by a CPU's dot products of bytes (AVX512-VNNI, AVX-VNNI): see `vnni.cpp`.

Rows enter as numbers of 16 bits, and are multiplied exactly. A row comes out alike, bit for bit, whatever is computed
beside it.
"""

import math
from collections.abc import Iterable
from ctypes import Structure, addressof, c_float, c_int64, c_void_p
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cpp.library import compiler, library, own_kernels, usable
from sampling.forward.cpp.native import Multiply, NativeLinear, as_multiply, fault
from sampling.forward.kernels.linear import Kernel, Product
from sampling.forward.kernels.quantisation_scales import GROUP

_MIDDLE = 128  # the level of 8 bits that means 0
_MOST_INPUTS = 1 << 16  # whose products of bytes no sum of 32 bits overflows
_LARGEST_STEP = 14  # as a power of two; 16 bits hold up to 15
_TOLERANCE = 1e-3
_ROWS, _OUTPUTS, _INPUTS = 9, 72, 96


class _Matrix(Structure):
    """`Matrix` of `vnni.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in ("levels", "steps", "lowest", "scale")),
        *((name, c_int64) for name in ("outputs", "inputs", "filled")),
        ("factor", c_float),
    )


class VnniKernel(NamedTuple):
    """lanes: how many outputs lie side by side; 0 where this CPU has no such products."""

    bits: int
    grouped: bool
    lanes: int
    multiply: Multiply


class Grid(NamedTuple):
    """Weights `[out, in]` on a grid: levels from 0 in uint8; what a level adds, `[out]`, or `[out, groups]` of inputs.

    lowest: what level 0 of a group means, `[out, groups]`, in 4 bits; levels of 8 bits count from 128.
    """

    levels: Tensor
    steps: Tensor
    lowest: Tensor | None = None

    @classmethod
    def signed(cls, levels: Tensor, steps: Tensor) -> "Grid":
        """Of levels in int8."""
        return cls((levels.to(torch.int16) + _MIDDLE).to(torch.uint8), steps)


def vnni_kernel(bits: int, grouped: bool, weight: Tensor) -> VnniKernel | None:
    """What multiplies with such a weight `[out, in]`; None where it cannot be had.

    bits: 8 or 4. grouped: whether each group of 32 inputs has a step, or each output.
    """
    inputs = weight.shape[1]
    fits = inputs % GROUP == 0 if grouped else inputs <= _MOST_INPUTS
    if not own_kernels() or weight.device.type != "cpu" or not fits or compiler() is None:
        return None
    kernel = _checked(bits, grouped)
    return kernel if kernel and kernel.lanes else None


class VnniLinear(NativeLinear):
    """Weights on a grid, and inputs in 16 bits, with a scale for each row, or for each group of 32 inputs of it."""

    def __init__(self, kernel: VnniKernel, slices: Iterable[Grid], bias: Tensor | None = None) -> None:
        """slices: of the outputs, of whole blocks each but for the last."""
        self._kernel, self.outputs, self.inputs = kernel, 0, 0
        self._levels, *grids = map(torch.cat, zip(*map(self._packed, slices), strict=True))
        self._factor = _halve(grids) if kernel.grouped else 1.0
        self._grids = tuple(grids)
        self._matrix = self._laid_out()
        super().__init__(kernel.multiply, addressof(self._matrix), (self.outputs, self.inputs), bias)

    def dense(self) -> Tensor:
        """The weight as the products take it, `[out, in]` in float32."""
        levels = self._levels
        if self._kernel.bits == 4:
            levels = torch.stack([levels & 15, levels >> 4], dim=2).flatten(1, 2)
        numbers = levels.transpose(1, 2).flatten(0, 1).flatten(1).float()
        if not self._kernel.grouped:
            return ((numbers - _MIDDLE) * self._grids[0].unsqueeze(1))[: self.outputs, : self.inputs].contiguous()
        steps, *lowest = (grid.float().transpose(1, 2).flatten(0, 1).unsqueeze(-1) for grid in self._grids)
        groups = numbers.unflatten(1, (-1, GROUP))
        wide = groups * steps + lowest[0] if lowest else (groups - _MIDDLE) * steps
        dense: Tensor = (wide.flatten(1) * self._factor)[: self.outputs].contiguous()
        return dense

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self.dense(), self.added)

    def _packed(self, grid: Grid) -> tuple[Tensor, ...]:
        """Levels `[blocks, quads, lanes, 4]`, of 4 bits two quads in one; steps and lowest values beside each other."""
        lanes, outputs = self._kernel.lanes, len(grid.levels)
        self.outputs, self.inputs = self.outputs + outputs, grid.levels.shape[1]
        missing = -outputs % lanes
        levels = F.pad(grid.levels, (0, -self.inputs % GROUP, 0, missing))
        quads = levels.unflatten(1, (-1, 4)).unflatten(0, (-1, lanes)).transpose(1, 2)
        if self._kernel.bits == 4:
            first, second = quads.unflatten(1, (-1, 2)).unbind(2)
            quads = first | (second << 4)
        if not self._kernel.grouped:
            return quads.contiguous(), F.pad(grid.steps, (0, missing))
        values = (grid.steps,) if grid.lowest is None else (grid.steps, grid.lowest)
        sides = (F.pad(value, (0, 0, 0, missing)).unflatten(0, (-1, lanes)).transpose(1, 2) for value in values)
        return quads.contiguous(), *(side.contiguous() for side in sides)

    def _laid_out(self) -> _Matrix:
        steps = self._grids[0].data_ptr()
        return _Matrix(
            levels=self._levels.data_ptr(),
            steps=steps if self._kernel.grouped else None,
            lowest=self._grids[1].data_ptr() if len(self._grids) > 1 else None,
            scale=None if self._kernel.grouped else steps,
            outputs=self.outputs,
            inputs=self.inputs,
            filled=self.inputs + -self.inputs % GROUP,
            factor=self._factor,
        )


def _halve(grids: list[Tensor]) -> float:
    """Steps and lowest values in 16 bits from now on; the power of two by which they are divided, so that they fit."""
    largest = max(float(grid.abs().max()) for grid in grids)
    factor: float = 2.0 ** (math.frexp(largest)[1] - _LARGEST_STEP)
    grids[:] = [(grid / factor).half() for grid in grids]
    return factor


@cache
def _checked(bits: int, grouped: bool) -> VnniKernel | None:
    """The kernel; None where it is not right, and a line says why."""
    return usable(f"products of {bits} bits", lambda: _made(bits, grouped), _fault)


def _made(bits: int, grouped: bool) -> VnniKernel:
    made = library("vnni", BITS=str(bits), GROUPED=str(int(grouped)))
    made.lanes.restype = c_int64
    if not (lanes := int(made.lanes())):
        return VnniKernel(bits, grouped, 0, _nothing)
    return VnniKernel(bits, grouped, lanes, as_multiply(made.multiply))


def _nothing(*_: int) -> None:
    raise AssertionError("it has no lanes")


@torch.inference_mode()
def _fault(kernel: VnniKernel) -> str | None:
    """What is wrong with it on a few rows; None where nothing is, and where there are no products at all."""
    if not kernel.lanes:
        return None
    chance = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 1 << kernel.bits, (_OUTPUTS, _INPUTS), generator=chance, dtype=torch.uint8)
    steps = torch.rand(_OUTPUTS, _INPUTS // GROUP, generator=chance)
    grid = Grid(levels, steps if kernel.grouped else steps[:, 0], -7 * steps if kernel.bits == 4 else None)
    layer = VnniLinear(kernel, [grid])
    x = torch.randn(_ROWS, _INPUTS, generator=chance)
    return fault(layer, layer.dense(), x, _TOLERANCE)
