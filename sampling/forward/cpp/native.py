"""Linear layers whose products are C++ of our own: what a block in C++ calls as well."""

from collections.abc import Callable
from ctypes import c_int64, c_void_p, cast
from typing import NamedTuple

import torch
from torch import Tensor

from sampling.forward.kernels.linear import Arithmetic, Prepared, QuantisedLinear, with_bias

Multiply = Callable[[int, int, int, int, int], None]
"""Of the addresses of a matrix, of rows and of what is filled, the number of rows, and of threads at most."""


class Native(NamedTuple):
    """The addresses of a function (`Multiply`) and of its matrix."""

    function: int
    matrix: int


def as_multiply(function: Callable[..., None]) -> Multiply:
    """The `multiply` of a library of ours."""
    function.argtypes, function.restype = [c_void_p] * 3 + [c_int64] * 2, None  # type: ignore[attr-defined]
    return function


def _wide(x: Tensor) -> Prepared:
    return (x.float(),)


class NativeLinear(QuantisedLinear):
    """Rows enter in float32 and leave so. A row comes out alike, bit for bit, whatever is computed beside it.

    multiply, matrix: the function, and the address of the matrix that it takes.
    """

    arithmetic = Arithmetic("native", _wide, with_bias)

    def __init__(self, multiply: Multiply, matrix: int, shape: tuple[int, int], bias: Tensor | None) -> None:
        """shape: outputs and inputs."""
        self.added = None if bias is None else bias.detach().float().contiguous()
        self.outputs, self.inputs = shape
        self._multiply, self._address = multiply, matrix

    @property
    def native(self) -> Native:
        """What code in C++ calls."""
        return Native(int(cast(self._multiply, c_void_p).value or 0), self._address)  # type: ignore[arg-type]

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        x, rows = x.contiguous(), x.shape[0]
        out = x.new_empty(rows, self.outputs)
        self._multiply(self._address, x.data_ptr(), out.data_ptr(), rows, torch.get_num_threads())
        return out


def fault(layer: NativeLinear, weight: Tensor, x: Tensor, tolerance: float) -> str | None:
    """What is wrong with its product on rows `[n, in]`; None where nothing is. weight: `[out, in]`, as it takes it."""
    found, meant = layer(x), x.double() @ weight.double().T
    error = float((found - meant).norm() / meant.norm())
    if not error <= tolerance:
        return f"they are off by {error:.1%}"
    alone = torch.cat([layer(row) for row in x.split(1)])
    return None if torch.equal(alone, found) else "a row has other bits among others"
