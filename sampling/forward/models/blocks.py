"""The blocks of a lean forward: fused projections, a rotary table, attention that never repeats a key.

Speculation on a small model is decided by what surrounds the matrix products. Here q, k and v are one
product, gate and up another; rotary embeddings come from a table; keys and values are written straight into the
cache, which attends.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cpp.block import NativeBlocks, native_blocks, places_of
from sampling.forward.kernels.attention import folded_mask
from sampling.forward.kernels.linear import Kernel, Prepared, Product
from sampling.forward.kernels.quantisation_scales import FP8
from sampling.forward.kernels.scores import PLAIN_SCORES, Masks, Scores
from sampling.forward.models.experts import Experts
from sampling.forward.models.steps import BlockShape, Norm, Steps
from sampling.forward.triton.checked import fuses_steps, rounds_to_fp8
from sampling.forward.triton.steps import TritonSteps

RotaryTable = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block. A norm is None where the family has none there.

    attention_after, mlp_after: norms of what a half adds. scores: of its attention. table: which of the blocks' rotary
    tables turns it. An MLP is gate_up and down, or experts.
    """

    attention_norm: Norm | None
    qkv: Product
    q_norm: Norm | None
    k_norm: Norm | None
    out: Product
    mlp_norm: Norm | None
    gate_up: Product | None
    down: Product | None
    attention_after: Norm | None = None
    mlp_after: Norm | None = None
    scores: Scores = PLAIN_SCORES
    table: int = 0
    experts: Experts | None = None

    @property
    def norm(self) -> Norm:
        """A norm over the width of the model."""
        norms = dict(self.norms())
        return next(norms[name] for name in ("mlp_norm", "attention_norm", "attention_after") if name in norms)

    @property
    def mlp(self) -> Product:
        """What rows enter first in the MLP."""
        into = self.experts or self.gate_up
        assert into is not None, "a layer has an MLP or experts"
        return into

    def norms(self) -> Iterator[tuple[str, Norm]]:
        """Those that there are, by name."""
        for name in ("attention_norm", "q_norm", "k_norm", "mlp_norm", "attention_after", "mlp_after"):
            norm = getattr(self, name)
            if norm is not None:
                yield name, norm

    def products(self) -> dict[str, Product]:
        """Those of the layer itself that there are, by name."""
        named = {name: getattr(self, name) for name in ("qkv", "out", "gate_up", "down")}
        return {name: product for name, product in named.items() if product is not None}

    def with_kernel(self, kernel: Kernel) -> "Layer":
        """The same layer, its products computed by another kernel."""
        experts = None if self.experts is None else self.experts.with_kernel(kernel)
        products: dict[str, Any] = {name: product.with_kernel(kernel) for name, product in self.products().items()}
        return replace(self, experts=experts, **products)


@dataclass(frozen=True)
class Blocks:
    """Blocks one after the other, with the rotary tables that they share: cos and sin, `[window, head_dim]` each."""

    layers: tuple[Layer, ...]
    tables: tuple[RotaryTable, ...]
    shape: BlockShape
    compiled: Steps | None = None

    @cached_property
    def steps(self) -> Steps:
        """What happens between the products: compiled where that was asked for, else by our kernels where they run."""
        cos, _ = self.tables[0]
        if self.compiled is None and fuses_steps(cos.device, cos.dtype, self.shape):
            rounds = any(product.arithmetic is FP8 for layer in self.layers for product in layer.products().values())
            return TritonSteps(self.shape, rounds and rounds_to_fp8(cos.device, cos.dtype, self.shape))
        return self.compiled or Steps(self.shape)

    @cached_property
    def native(self) -> NativeBlocks | None:
        """The same blocks in C++: see `native_blocks`."""
        return native_blocks(self)

    def turns(self, positions: Tensor) -> list[RotaryTable]:
        """cos and sin of these positions `[n]` in each table, `[n, 1, head_dim]`."""
        return [(cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)) for cos, sin in self.tables]

    def run(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: "Attending",
        read: Tensor | None = None,
        hidden: Collection[int] = (),
    ) -> dict[int, Tensor]:
        """The states `[n, H]` behind the last block, and behind those asked for: by number, 1 is the first block.

        read: what the first attention reads instead of its norm of x.
        """
        if self.native is not None and (places := places_of(cache)) is not None:
            return self.native.run(x, positions, places, read, hidden)
        states = enumerate(self.run_stepwise(x, positions, mask, cache, read), start=1)
        return {number: state for number, state in states if number == len(self.layers) or number in hidden}

    def run_stepwise(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: "Attending",
        read: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The state after each block, a product and a step after the other."""
        turns = self.turns(positions)
        masks = None if mask is None else Masks(folded_mask(mask, self.shape.heads // self.shape.kv_heads))
        steps, first, parallel = self.steps, self.layers[0], self.shape.parallel
        if read is None:
            read = _normed(x, first.attention_norm)
        entered = steps.enter(read, first.qkv)
        for layer, following, rows in zip(self.layers, [*self.layers[1:], None], cache.layers, strict=True):
            norms = layer.q_norm, layer.k_norm
            raw, turn = layer.qkv.multiplied(entered), turns[layer.table]
            attended = steps.attend(raw, entered[1:], layer.qkv, norms, *turn, rows, masks, layer.scores)
            entered = steps.enter(attended, layer.out)
            raw = layer.out.multiplied(entered)
            if parallel:
                x = steps.leave(x, raw, entered[1:], layer.out)
                entered = steps.enter(read, layer.mlp)
            else:
                norms = layer.attention_after, layer.mlp_norm
                x, entered = steps.join(x, raw, entered[1:], layer.out, norms, layer.mlp)
            of, raw, rest = self._mlp(layer, entered)
            if following is None:
                yield steps.leave(x, raw, rest, of, layer.mlp_after)
            elif parallel:
                yield (x := steps.leave(x, raw, rest, of))
                read = _normed(x, following.attention_norm)
                entered = steps.enter(read, following.qkv)
            else:
                norms = layer.mlp_after, following.attention_norm
                x, entered = steps.join(x, raw, rest, of, norms, following.qkv)
                yield x

    def _mlp(self, layer: Layer, entered: Prepared) -> tuple[Product, Tensor, Prepared]:
        """The last product of a layer, what it gave of rows that entered the MLP, and what leaving it needs."""
        if layer.gate_up is None or layer.down is None:
            return layer.mlp, layer.mlp.multiplied(entered), ()
        raw = layer.gate_up.multiplied(entered)
        entered = self.steps.gate(raw, entered[1:], layer.gate_up, layer.down)
        return layer.down, layer.down.multiplied(entered), entered[1:]

    def with_kernel(self, kernel: Kernel) -> "Blocks":
        """The same blocks, their products computed by another kernel."""
        return replace(self, layers=tuple(layer.with_kernel(kernel) for layer in self.layers), compiled=None)


class Attending(Protocol):
    """A cache, as blocks see it: of one sequence (`RollbackCache`) or of a batch."""

    @property
    def layers(self) -> Sequence[Any]: ...


class Weights(Protocol):
    """Weights by their transformers names: a dict, or a file that reads them when they are taken."""

    def __contains__(self, name: object, /) -> bool: ...

    @overload
    def pop(self, name: str, /) -> Any: ...
    @overload
    def pop(self, name: str, default: Any, /) -> Any: ...


def _normed(x: Tensor, norm: Norm | None) -> Tensor:
    return x if norm is None else norm(x)


def rotary_table(inv_freq: Tensor, scale: float, window: int, like: Tensor, head_dim: int | None = None) -> RotaryTable:
    """cos and sin `[window, head_dim]`; sin carries the sign of the rotation, so that a roll replaces it.

    rotate_half(x) = (-x2, x1) and roll(x, D / 2) = (x2, x1): the first half of sin is negated. inv_freq:
    `[turned / 2]`. head_dim: where it is more than is turned, the rest of each half is left as it is.
    """
    positions = torch.arange(window, device=like.device, dtype=torch.float32)
    angles = positions.unsqueeze(1) * inv_freq.to(like.device, torch.float32)
    cos, sin = (angles.cos() * scale).to(like.dtype), (angles.sin() * scale).to(like.dtype)
    if head_dim is not None:
        still = 0, head_dim // 2 - len(inv_freq)
        cos, sin = F.pad(cos, still, value=1.0), F.pad(sin, still)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
