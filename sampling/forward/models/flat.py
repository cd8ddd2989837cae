"""The steps between the products as functions of flat lists of tensors, which is what a compiler takes and gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.kernels.linear import Arithmetic, Prepared
from sampling.forward.models.blocks import Blocks
from sampling.forward.models.steps import SILU, Heads, Norm, ProductFormat, Steps, centred_norm, gated

ROWS = 5
"""Of the tensors that a step is tried on."""
_TOLERANCE = 0.02

Rows = tuple[Tensor, ...]
Absent = tuple[Tensor | None, ...]
Products = tuple[Arithmetic, ...]
Key = tuple[str, tuple[bool, ...], Products]
Run = Callable[[list[Tensor]], list[Tensor]]


def key_of(step: str, weights: Absent, products: Products) -> Key:
    return step, tuple([weight is not None for weight in weights]), products


@dataclass(frozen=True, slots=True)
class Call:
    """A step with its row tensors, its weights, of which some may be absent, and the arithmetics of its products."""

    step: str
    rows: Rows
    weights: Absent
    products: Products

    @property
    def key(self) -> Key:
        return key_of(self.step, self.weights, self.products)

    @property
    def tensors(self) -> list[Tensor]:
        return [*self.rows, *(weight for weight in self.weights if weight is not None)]

    def filled(self, tensors: Sequence[Tensor]) -> "Call":
        """The same step of other tensors, in the order of `tensors`."""
        left = iter(tensors[len(self.rows) :])
        weights = tuple(None if weight is None else next(left) for weight in self.weights)
        return Call(self.step, tuple(tensors[: len(self.rows)]), weights, self.products)


class FlatSteps(Steps):
    """Steps as calls of flat lists of tensors, which is what a compiled one takes and gives.

    `leave` stays as it is: a forward calls it once.
    """

    __slots__ = ()

    def call(self, step: str, rows: Rows, weights: Absent = (), products: Products = ()) -> list[Tensor]:
        """What the step gives: see `Call`."""
        raise NotImplementedError

    def enter(self, x: Tensor, into: ProductFormat) -> Prepared:
        return tuple(self.call("enter", (x,), (), (into.arithmetic,)))

    def turn(
        self,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        cos: Tensor,
        sin: Tensor,
    ) -> Heads:
        weights = of.added, _weight(norms[0]), _weight(norms[1])
        query, keys, values = self.call("turn", (raw, *rest, cos, sin), weights, (of.arithmetic,))
        return query, keys, values

    def join(
        self,
        x: Tensor,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        into: ProductFormat,
    ) -> tuple[Tensor, Prepared]:
        products, weights = (of.arithmetic, into.arithmetic), (of.added, _weight(norms[0]), _weight(norms[1]))
        joined, *entered = self.call("join", (x, raw, *rest), weights, products)
        return joined, tuple(entered)

    def gate(self, raw: Tensor, rest: Prepared, of: ProductFormat, into: ProductFormat) -> Prepared:
        return tuple(self.call("gate", (raw, *rest), (of.added,), (of.arithmetic, into.arithmetic)))


def _weight(norm: Norm | None) -> Tensor | None:
    return None if norm is None else norm.weight


@dataclass(frozen=True, slots=True)
class Formulas(FlatSteps):
    """The steps as formulas of tensors alone.

    norm: an example of the model's norms. seen: an example of each step, for the compiler.
    """

    norm: Norm
    seen: dict[Key, Call]

    def call(self, step: str, rows: Rows, weights: Absent = (), products: Products = ()) -> list[Tensor]:
        call = Call(step, rows, weights, products)
        self.seen.setdefault(call.key, call)
        return self.result(call)

    def result(self, call: Call) -> list[Tensor]:
        """What a step gives, by its formula."""
        steps = _Loops(self.shape)
        of = _ProductFormat(call.products[0], call.weights[0] if call.weights else None)
        into = _ProductFormat(call.products[-1], None)
        norms: list[Any] = [None if weight is None else _Formula(weight, self.norm) for weight in call.weights[1:]]
        match call.step, call.rows:
            case "enter", (x,):
                return list(steps.enter(x, into))
            case "turn", (raw, *rest, cos, sin):
                return list(steps.turn(raw, tuple(rest), of, (norms[0], norms[1]), cos, sin))
            case "join", (x, raw, *rest):
                joined, entered = steps.join(x, raw, tuple(rest), of, (norms[0], norms[1]), into)
                return [joined, *entered]
            case "gate", (raw, *rest):
                return list(steps.gate(raw, tuple(rest), of, into))
        raise ValueError(call.step)


@dataclass(frozen=True, slots=True)
class _ProductFormat:
    """See `ProductFormat`."""

    arithmetic: Arithmetic
    added: Tensor | None


class _Loops(Steps):
    """Steps without what is there for single operations' sake."""

    __slots__ = ()

    def gated(self, both: Tensor) -> Tensor:
        if self.shape.gate != SILU:
            return gated(both, self.shape.gate)
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate) * up


class _Formula:
    """A norm like another one, without what `Norm` does for single operations' sake."""

    def __init__(self, weight: Tensor, like: Norm) -> None:
        self.weight, self._eps, self._centred = weight, like.eps, like.centred

    def __call__(self, x: Tensor) -> Tensor:
        if self._centred:
            return centred_norm(x, self.weight, self._eps)
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        return (wide * scale * self.weight.float()).to(x.dtype)


@dataclass(frozen=True, slots=True)
class CompiledSteps(FlatSteps):
    """Steps that were compiled for the sizes and the number format of one model."""

    runs: dict[Key, Run]

    def call(self, step: str, rows: Rows, weights: Absent = (), products: Products = ()) -> list[Tensor]:
        there = [weight for weight in weights if weight is not None]
        return self.runs[key_of(step, weights, products)]([*rows, *there])


def examples(blocks: Blocks) -> Formulas:
    """The steps that these blocks call, each with the tensors of a forward of a few rows."""
    norm, (cos, _) = blocks.layers[0].norm, blocks.tables[0]
    formulas = Formulas(blocks.shape, norm, {})
    cache = RollbackCache(len(blocks.layers), cos.device, cos.dtype)
    x = torch.randn(ROWS, len(norm.weight), generator=torch.Generator().manual_seed(0)).to(cos)
    positions = torch.arange(ROWS, device=x.device)
    for _ in replace(blocks, compiled=formulas).run_stepwise(x, positions, cache.mask(ROWS), cache):
        pass
    return formulas


def near(output: Tensor, expected: Tensor) -> bool:
    """Equal to rounding."""
    return bool((output.float() - expected.float()).norm() <= _TOLERANCE * expected.float().norm())
