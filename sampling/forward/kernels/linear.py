"""Linear layers for few tokens at a time, each computed by one kernel; `kernels` chooses."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS_HINT = 16
_TRIED_ROWS, _TRIED = 64, 1 << 18
_MANY_ROWS = 8

Prepared = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic:
    """How rows enter a product and how they leave it, apart from the product, so that what surrounds it can do both.

    enter: rows `[n, in]` -> what the product takes, and what `leave` needs besides. leave: what the product gave,
    those, and the bias -> `[n, out]`. Pure functions of tensors, row by row.
    """

    name: str
    enter: Callable[[Tensor], Prepared]
    leave: Callable[[Tensor, Prepared, Tensor | None], Tensor]


def _as_it_is(x: Tensor) -> Prepared:
    return (x,)


def with_bias(raw: Tensor, rest: Prepared, bias: Tensor | None) -> Tensor:
    """Leaving a product that gave the result but for the bias: see `Arithmetic`."""
    return raw if bias is None else raw + bias


PLAIN = Arithmetic("plain", _as_it_is, with_bias)


class Linear(Protocol):
    """y = x W^T + b for x `[n, in]`."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def with_kernel(self, kernel: "Kernel") -> "Linear":
        """The same layer, computed by another kernel."""
        ...


class Product(Linear, Protocol):
    """A linear layer in its parts: y = leave(product(enter(x)), added).

    added: the bias, where `product` itself does not add it.
    """

    @property
    def arithmetic(self) -> Arithmetic: ...

    @property
    def added(self) -> Tensor | None: ...

    def product(self, x: Tensor) -> Tensor:
        """The product alone, of rows that have entered."""
        ...

    def multiplied(self, entered: Prepared) -> Tensor:
        """The same of all that `enter` gave: a product may need what else there is."""
        ...

    def with_kernel(self, kernel: "Kernel") -> "Product":
        """The same layer, computed by another kernel."""
        ...


Kernel = Callable[..., Product]


class PlainLinear(ABC):
    """A layer whose product is all of it."""

    arithmetic: Arithmetic = PLAIN
    added: Tensor | None = None

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""

    def multiplied(self, entered: Prepared) -> Tensor:
        """See `Product`."""
        return self.product(entered[0])

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)


class QuantisedLinear(ABC):
    """A layer that computes in a format of its own: rows enter a product and leave it, then have their dtype again."""

    arithmetic: Arithmetic
    added: Tensor | None

    @abstractmethod
    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""

    def multiplied(self, entered: Prepared) -> Tensor:
        """See `Product`."""
        return self.product(entered[0])

    def __call__(self, x: Tensor) -> Tensor:
        entered = self.arithmetic.enter(x)
        return self.arithmetic.leave(self.multiplied(entered), entered[1:], self.added).to(x.dtype)


class DenseLinear(PlainLinear):
    """The plain kernel, on any device and dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        return F.linear(x, self.weight, self.bias)

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self.weight, self.bias)


class WideningLinear(PlainLinear):
    """The plain kernel for few rows; for many, the product in float32 on a widened copy of the weight.

    For CPUs that have no arithmetic of the dtype: there a product of many rows costs as much a row as one
    row alone, and reading the weight once more to widen it is cheaper from a dozen rows on.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        if x.shape[0] < _MANY_ROWS:
            return F.linear(x, self._weight, self._bias)
        bias = None if self._bias is None else self._bias.float()
        return F.linear(x.float(), self._weight.float(), bias).to(x.dtype)

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self._weight, self._bias)


class PackedLinear(PlainLinear):
    """oneDNN with the weight reordered once into its blocked layout, as torch's own compiler does it.

    On CPUs where the plain kernel reads the weight in a poor order this is two to three times faster for
    1 to 20 tokens. The packed copy replaces the weight: keep no other reference to it.

    A row alone gets a kernel of its own. Where that one adds up in another order, which is tried once for each shape, a
    row alone is computed as two.
    """

    _doubled: ClassVar[dict[tuple[object, ...], bool]] = {}

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        self._bias = bias
        shape = weight.dtype, *weight.shape, bias is None, torch.get_num_threads()
        if shape not in self._doubled:
            self._doubled[shape] = self._one_differs(*weight.shape)
        self._doubles = self._doubled[shape]

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        if self._doubles and x.shape[0] == 1:
            return self._product(x.expand(2, -1))[:1]
        return self._product(x)

    def _product(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return y

    @torch.inference_mode()
    def _one_differs(self, outputs: int, inputs: int) -> bool:
        """Whether a row alone comes out otherwise than among others; numbers of all sizes let rounding show."""
        chance, rows = torch.Generator().manual_seed(0), max(2, min(_TRIED_ROWS, _TRIED // outputs))
        sizes = 2.0 ** torch.randint(0, 8, (rows, inputs), generator=chance)
        x = (torch.randn(rows, inputs, generator=chance) * sizes).to(self._packed.dtype)
        return not torch.equal(torch.cat([self._product(row) for row in x.split(1)]), self._product(x))

    def dense(self) -> Tensor:
        """The weight as it was, `[out, in]`."""
        weight: Tensor = self._packed.to_dense()
        return weight

    def with_kernel(self, kernel: Kernel) -> Product:
        return kernel(self.dense(), self._bias)


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """Two layers for one matrix, their product (SlimSpec, arXiv 2605.10453): down `[r, in]`, then up `[out, r]`."""

    down: Linear
    up: Linear

    def __call__(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))

    def with_kernel(self, kernel: Kernel) -> Linear:
        return LowRank(self.down.with_kernel(kernel), self.up.with_kernel(kernel))


class CandidateLinear:
    """An output matrix of which only the rows of likely tokens are read, those that another product finds (EAGLE-4).

    finds: rough logits `[n, D]` of x. weight: `[D, in]`. candidates: how many rows of it are read; all other tokens
    have the lowest finite logit.
    """

    def __init__(self, finds: Linear, weight: Tensor, candidates: int) -> None:
        self.finds, self.weight, self.candidates = finds, weight, candidates

    def __call__(self, x: Tensor) -> Tensor:
        found = self.finds(x).topk(self.candidates, sorted=False).indices
        scores = (self.weight[found] * x.unsqueeze(1)).sum(dim=-1)
        lowest = x.new_full((x.shape[0], len(self.weight)), torch.finfo(x.dtype).min)
        return lowest.scatter_(1, found, scores)

    def with_kernel(self, kernel: Kernel) -> Linear:
        return CandidateLinear(self.finds.with_kernel(kernel), self.weight, self.candidates)


class ReducedOutput:
    """An output matrix of a draft vocabulary (FR-Spec, arXiv 2502.14856): every other token is never drafted.

    linear: gives logits of the token ids `[D]`. Gives those of the whole vocabulary, so that nothing behind it
    has to know; the tokens that are missing have the lowest finite one.
    """

    def __init__(self, linear: Linear, ids: Tensor, vocab_size: int) -> None:
        self.linear, self.ids, self.vocab_size = linear, ids, vocab_size

    @property
    def whole(self) -> bool:
        """Whether it gives logits of all tokens."""
        return len(self.ids) == self.vocab_size

    def __call__(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.whole:
            return y
        return y.new_full((x.shape[0], self.vocab_size), torch.finfo(y.dtype).min).index_copy_(1, self.ids, y)

    def with_kernel(self, kernel: Kernel) -> Linear:
        return ReducedOutput(self.linear.with_kernel(kernel), self.ids, self.vocab_size)


def drafted_ids(output: Linear | None) -> Tensor | None:
    """The tokens that an output has logits of, `[D]`, ascending; None: all."""
    if not isinstance(output, ReducedOutput) or output.whole:
        return None
    return output.ids.sort().values
