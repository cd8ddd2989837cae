"""Products of rounded weights on CUDA: torch's own in int4 and fp8, ours or torch's in int8.

How a card sums depends on the shape that it is given, so nothing here promises that a row is the same bit for bit
whatever is computed beside it.
"""

from functools import cache

import torch
from torch import Tensor

from sampling.forward.kernels.int4 import as_products_take, on_grid
from sampling.forward.kernels.int8 import rounded
from sampling.forward.kernels.linear import Kernel, PlainLinear, Prepared, Product, QuantisedLinear
from sampling.forward.kernels.quantisation_scales import FP8, GROUP, in_fp8, in_slices
from sampling.forward.triton.byte_products import product_of_bytes
from sampling.forward.triton.checked import multiplies_bytes

FP8_CAPABILITY = (8, 9)
_TILE = 16
_TILES = (8, 4, 2)
_TOLERANCE = 0.1


class CudaInt4Linear(PlainLinear):
    """The weights of `Int4Linear` in the layout of CUDA's tensor cores: `[out / 8, in / (16 tiles), 32, tiles / 2]`.

    The input, the steps and the lowest values are rounded to bfloat16. Shapes as `int4.divides` has them.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._inputs = weight.shape[1]
        levels, steps, lowest = in_slices(weight.detach(), _levels_in_bytes)
        self._packed = torch.ops.aten._convert_weight_to_int4pack(levels, inner_tiles(self._inputs))
        self._grid = as_products_take(steps, lowest)
        self._bias = None if bias is None else bias.detach()

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        y: Tensor = torch.ops.aten._weight_int4pack_mm(x.to(torch.bfloat16), self._packed, GROUP, self._grid)
        return _with_bias(y.to(x.dtype), self._bias)

    def with_kernel(self, kernel: Kernel) -> Product:
        unit = torch.eye(self._inputs, dtype=torch.bfloat16, device=self._packed.device)
        weight = torch.ops.aten._weight_int4pack_mm(unit, self._packed, GROUP, self._grid).T
        return kernel(weight.float().contiguous(), self._bias)


class CudaInt8Linear(PlainLinear):
    """Weights in 8 bits with one scale an output; sums in float32. The product is our kernel's, where it is right."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._levels, self._scale = in_slices(weight.detach(), rounded)
        self._bias = None if bias is None else bias.detach()
        self._ours = multiplies_bytes(weight.device, weight.dtype)

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        if self._ours:
            return _with_bias(product_of_bytes(x.contiguous(), self._levels, self._scale), self._bias)
        wide = x.float().contiguous()  # the kernel reads rows one behind the other, whatever the strides say
        y: Tensor = torch.ops.aten._weight_int8pack_mm(wide, self._levels, self._scale)
        return _with_bias(y.to(x.dtype), self._bias)

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self._levels * self._scale.unsqueeze(1), self._bias)


class Fp8Linear(QuantisedLinear):
    """Weights and inputs in 8 bits of floating point (e4m3, arXiv 2209.05433), each output and each row with its scale.

    in and out must divide by 16; the result is in bfloat16.
    """

    arithmetic = FP8

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._scale = in_slices(weight.detach(), in_fp8)
        self._by_output = self._scale.T.contiguous()
        self.added = None if bias is None else bias.detach()

    def product(self, x: Tensor) -> Tensor:
        """See `Product`; x: rows in e4m3 whose scale is 1."""
        return self.multiplied((x, torch.ones(len(x), 1, device=x.device)))

    def multiplied(self, entered: Prepared) -> Tensor:
        """See `Product`."""
        short, scale = entered
        y: Tensor = torch._scaled_mm(
            short, self._weight.T, scale_a=scale, scale_b=self._by_output, out_dtype=torch.bfloat16
        )
        return y

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self._weight.float() * self._scale, self.added)


def inner_tiles(inputs: int) -> int:
    """How many tiles of 16 inputs the layout in 4 bits holds side by side: the most that these inputs divide into."""
    return next(tiles for tiles in _TILES if inputs % (tiles * _TILE) == 0)


def two_a_byte(levels: Tensor) -> Tensor:
    """Levels 0 to 15 `[out, in]` as bytes `[out, in / 2]`, the first of two in the upper half."""
    return (levels[:, ::2] << 4 | levels[:, 1::2]).to(torch.uint8)


@cache
def agrees(kernel: Kernel, device: torch.device) -> bool:
    """Whether a device has these products, and they are right to a tenth, which 4 bits allow."""
    if kernel is Fp8Linear and device.type == "cuda" and torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        return False
    chance = torch.Generator().manual_seed(0)
    weight, x = (torch.rand(rows, 64, generator=chance) - 0.5 for rows in (64, 3))
    try:
        error = kernel(weight.to(device))(x.to(device)).cpu() - x @ weight.T
    except (RuntimeError, AttributeError):
        return False
    return bool(error.norm() < _TOLERANCE * (x @ weight.T).norm())


def _levels_in_bytes(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    levels, steps, lowest = on_grid(weight.float())
    return two_a_byte(levels.flatten(1)), steps, lowest


def _with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + bias.to(y.dtype)
