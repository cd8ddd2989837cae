"""Linear layers for few tokens at a time, and the choice of the kernel that runs them."""

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS_HINT = 16
_MANY_ROWS = 8
_PROBE_SHAPE = (1536, 576)
_PROBE_LAYERS = 16
_PROBE_PASSES = 4
PROBE_ROWS = (1, 5)


class Linear(Protocol):
    """y = x W^T + b for x `[n, in]`."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def with_kernel(self, kernel: "Kernel") -> "Linear":
        """The same layer, computed by another kernel."""
        ...


Kernel = Callable[..., Linear]


class DenseLinear:
    """The plain kernel, on any device and dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def with_kernel(self, kernel: Kernel) -> Linear:
        return kernel(self.weight, self.bias)


class WideningLinear:
    """The plain kernel for few rows; for many, the product in float32 on a widened copy of the weight.

    For CPUs that have no arithmetic of the dtype: there a product of many rows costs as much a row as one
    row alone, and reading the weight once more to widen it is cheaper from a dozen rows on.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] < _MANY_ROWS:
            return F.linear(x, self._weight, self._bias)
        bias = None if self._bias is None else self._bias.float()
        return F.linear(x.float(), self._weight.float(), bias).to(x.dtype)

    def with_kernel(self, kernel: Kernel) -> Linear:
        return kernel(self._weight, self._bias)


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

    def with_kernel(self, kernel: Kernel) -> Linear:
        return kernel(self._packed.to_dense(), self._bias)


class ReducedOutput:
    """An output matrix of a draft vocabulary (FR-Spec, arXiv 2502.14856): every other token is never drafted.

    linear: gives logits of the token ids `[D]`. Gives those of the whole vocabulary, so that nothing behind it
    has to know; the tokens that are missing have the lowest finite one.
    """

    def __init__(self, linear: Linear, ids: Tensor, vocab_size: int) -> None:
        self._linear, self._ids, self._vocab_size = linear, ids, vocab_size

    def __call__(self, x: Tensor) -> Tensor:
        y = self._linear(x)
        if len(self._ids) == self._vocab_size:
            return y
        return y.new_full((x.shape[0], self._vocab_size), torch.finfo(y.dtype).min).index_copy_(1, self._ids, y)

    def with_kernel(self, kernel: Kernel) -> Linear:
        return ReducedOutput(self._linear.with_kernel(kernel), self._ids, self._vocab_size)


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The layer with the kernel that a short probe found faster for this device and dtype."""
    weight = weight.detach().contiguous()
    bias = None if bias is None else bias.detach()
    return kernel(weight.device.type, weight.dtype)(weight, bias)


@cache
def kernel(device_type: str, dtype: torch.dtype) -> Kernel:
    """`PackedLinear` where it runs, agrees with the plain kernel and takes less for 1 plus 5 tokens.

    Where oneDNN refuses the dtype, because the CPU has no arithmetic of it: `WideningLinear`.
    """
    if device_type != "cpu" or not torch.backends.mkldnn.enabled:
        return DenseLinear
    x = _rows(PROBE_ROWS[-1], dtype)
    try:
        dense, packed = (cls(_weight(dtype)) for cls in (DenseLinear, PackedLinear))
        if not torch.allclose(packed(x), dense(x), rtol=2e-2, atol=2e-2 * _PROBE_SHAPE[1] ** 0.5):
            return DenseLinear
        slow, fast = (sum(probe_ms(cls, dtype)) for cls in (DenseLinear, PackedLinear))
    except (RuntimeError, AttributeError):
        return DenseLinear if dtype == torch.float32 else WideningLinear
    return PackedLinear if fast < slow else DenseLinear


@cache
def probe_ms(cls: Kernel, dtype: torch.dtype) -> tuple[float, ...]:
    """Least milliseconds of a pass over a stack of layers, for each of `PROBE_ROWS` rows.

    The stack is larger than a CPU's caches: in a model every weight comes from memory, and a single warm
    layer would favour the wrong kernel.
    """
    (times,) = race_ms((cls,), dtype)
    return times


def race_ms(kinds: Sequence[Kernel], dtype: torch.dtype) -> list[tuple[float, ...]]:
    """The same for several kernels that take turns: the fastest pass of each, since other load only ever adds time."""
    weight = _weight(dtype)
    stacks = [[kind(weight.clone()) for _ in range(_PROBE_LAYERS)] for kind in kinds]
    inputs = [_rows(count, dtype) for count in PROBE_ROWS]
    turns = [[[_pass_ms(stack, x) for x in inputs] for stack in stacks] for _ in range(_PROBE_PASSES)]
    return [tuple(map(min, zip(*(turn[place] for turn in turns), strict=True))) for place in range(len(kinds))]


def _pass_ms(layers: Sequence[Linear], x: Tensor) -> float:
    start = time.perf_counter()
    for layer in layers:
        layer(x)
    return 1e3 * (time.perf_counter() - start)


def _weight(dtype: torch.dtype) -> Tensor:
    return torch.randn(_PROBE_SHAPE, generator=torch.Generator().manual_seed(0)).to(dtype)


def _rows(count: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, _PROBE_SHAPE[1], generator=torch.Generator().manual_seed(1)).to(dtype)
