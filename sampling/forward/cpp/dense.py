"""Products of full weights on a CPU, in float32 and bfloat16: see `dense.cpp`."""

from ctypes import Structure, addressof, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cpp.kernel import LANES, NUMBERS
from sampling.forward.cpp.library import compiler, library, own_kernels, usable
from sampling.forward.cpp.native import Multiply, NativeLinear, as_multiply, fault
from sampling.forward.kernels.linear import Kernel, Product

_ROWS, _OUTPUTS, _INPUTS = 9, 72, 97
_TOLERANCE = 1e-5


class _Matrix(Structure):
    """`Matrix` of `dense.cpp`."""

    _fields_ = (("weights", c_void_p), *((name, c_int64) for name in ("outputs", "inputs", "filled", "rounds")))


class DenseNativeLinear(NativeLinear):
    """Full weights `[out, in]`, 16 outputs side by side, in bfloat16 two inputs of each.

    Weights in float32 that bfloat16 holds without loss, as those of most checkpoints, are kept in bfloat16: a product
    gives the same bits, and half as much is read.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, multiply: Multiply | None = None) -> None:
        """multiply: what multiplies with a weight in this format, where that is not yet known to be right."""
        short = weight.bfloat16()
        kept = short if multiply is None and torch.equal(short.to(weight.dtype), weight) else weight
        outputs, inputs = weight.shape
        side, step = (2, 32) if kept.dtype == torch.bfloat16 else (1, 1)
        filled = F.pad(kept, (0, -inputs % step, 0, -outputs % LANES))
        self._dtype = weight.dtype
        self._weights = filled.unflatten(1, (-1, side)).unflatten(0, (-1, LANES)).transpose(1, 2).contiguous()
        rounds = weight.dtype == torch.bfloat16
        self._matrix = _Matrix(self._weights.data_ptr(), outputs, inputs, filled.shape[1], rounds)
        multiply = multiply or dense_kernel(kept.dtype)
        assert multiply is not None, "who makes it has asked"
        super().__init__(multiply, addressof(self._matrix), (outputs, inputs), bias)

    def dense(self) -> Tensor:
        """The weight as it was, `[out, in]`."""
        rows = self._weights.transpose(1, 2).flatten(2, 3).flatten(0, 1)
        wide: Tensor = rows[: self.outputs, : self.inputs].to(self._dtype).contiguous()
        return wide

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self.dense(), None if self.added is None else self.added.to(self._dtype))


def dense_kernel(dtype: torch.dtype) -> Multiply | None:
    """What multiplies with weights in this format; None where it cannot be had."""
    return _checked(dtype) if own_kernels() and dtype in NUMBERS and compiler() is not None else None


@cache
def _checked(dtype: torch.dtype) -> Multiply | None:
    """The kernel; None where it is not right, and a line says why."""
    return usable(f"products in {NUMBERS[dtype]}", lambda: _made(dtype), lambda made: _fault(made, dtype))


def _made(dtype: torch.dtype) -> Multiply:
    return as_multiply(library("dense", NUMBER=NUMBERS[dtype]).multiply)


@torch.inference_mode()
def _fault(multiply: Multiply, dtype: torch.dtype) -> str | None:
    """What is wrong with it on a few rows; None where nothing is."""
    chance = torch.Generator().manual_seed(0)
    layer = DenseNativeLinear(torch.randn(_OUTPUTS, _INPUTS, generator=chance).to(dtype), None, multiply)
    x = torch.randn(_ROWS, _INPUTS, generator=chance).to(dtype).float()
    return fault(layer, layer.dense(), x, _TOLERANCE)
