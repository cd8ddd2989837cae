"""Linear layers for few tokens at a time, and the choice of the kernel that runs them."""

import time
from functools import cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS_HINT = 16
_PROBE_SHAPE = (1536, 576)
_PROBE_ROWS = (1, 5)


class Linear(Protocol):
    """y = x W^T + b for x `[n, in]`."""

    def __call__(self, x: Tensor) -> Tensor: ...


class DenseLinear:
    """The plain kernel, on any device and dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class PackedLinear:
    """oneDNN with the weight reordered once into its blocked layout, as torch's own compiler does it.

    On CPUs where the plain kernel reads the weight in a poor order this is two to three times faster for
    1 to 20 tokens. The packed copy replaces the weight: keep no other reference to it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return y


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The layer with the kernel that a short probe found faster for this device and dtype."""
    weight = weight.detach().contiguous()
    bias = None if bias is None else bias.detach()
    return kernel(weight.device.type, weight.dtype)(weight, bias)


@cache
def kernel(device_type: str, dtype: torch.dtype) -> type[DenseLinear] | type[PackedLinear]:
    """`PackedLinear` where it runs, agrees with the plain kernel and is faster for 1 and for 5 tokens."""
    if device_type != "cpu" or not torch.backends.mkldnn.enabled:
        return DenseLinear
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(_PROBE_SHAPE, generator=generator).to(dtype)
    dense = DenseLinear(weight)
    try:
        packed = PackedLinear(weight)
        for rows in _PROBE_ROWS:
            x = torch.randn(rows, _PROBE_SHAPE[1], generator=generator).to(dtype)
            if not torch.allclose(packed(x), dense(x), rtol=2e-2, atol=2e-2 * _PROBE_SHAPE[1] ** 0.5):
                return DenseLinear
            if median_s(packed, x) > median_s(dense, x):
                return DenseLinear
    except (RuntimeError, AttributeError):
        return DenseLinear
    return PackedLinear


def median_s(layer: Linear, x: Tensor, repeats: int = 15) -> float:
    """Median seconds of a layer on some rows, after a warm-up."""
    for _ in range(3):
        layer(x)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        layer(x)
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]
