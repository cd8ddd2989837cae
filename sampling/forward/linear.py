"""Linear layers for few tokens at a time, each computed by one kernel; `kernels` chooses."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS_HINT = 16
_MANY_ROWS = 8


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
