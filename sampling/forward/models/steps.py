"""What happens between the products of a block: norms, the rotary turn, the gate, residuals, and rounding.

Each step is a pure function of tensors, row by row: it takes what one product gave and ends with what the next one
takes, so that a compiler can make one loop of it.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cpp.varlen import VarlenAttention
from sampling.forward.kernels.linear import Arithmetic, Prepared
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.models.swiglu import silu_and_mul

SILU, GELU_TANH = "silu", "gelu_pytorch_tanh"
GATES = (SILU, GELU_TANH)
"""Activations of a gate, by transformers' names."""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Heads and their width, and what a block does between its products.

    gate: the activation of the MLP's gate, one of `GATES`. residual_scale: factor on what a half of a block adds.
    parallel: attention and MLP read the same norm (Cohere).
    """

    heads: int
    kv_heads: int
    head_dim: int
    gate: str = SILU
    residual_scale: float = 1.0
    parallel: bool = False


class Norm:
    """RMSNorm, x / sqrt(mean(x^2) + eps) * weight, over the last dimension.

    On a CPU it takes four operations in float32 instead of the nine behind `F.rms_norm`:
    sqrt(|x|^2 + d eps) is hypot(|x|, sqrt(d eps)), and sqrt(d) goes into the weight. centred: the mean is taken off
    first, which makes it a LayerNorm without a bias.
    """

    def __init__(self, weight: Tensor, eps: float, centred: bool = False) -> None:
        self.weight, self.eps, self.centred = weight, eps, centred
        self._scaled = weight.float() * len(weight) ** 0.5
        self._floor = self._scaled.new_full((), (len(weight) * eps) ** 0.5)
        self._short = weight.device.type == "cpu"

    def __call__(self, x: Tensor) -> Tensor:
        if self.centred:
            return centred_norm(x, self.weight, self.eps)
        if not self._short:
            return F.rms_norm(x.to(self.weight.dtype), x.shape[-1:], self.weight, self.eps).to(x.dtype)
        wide = x.float()
        length = torch.hypot(torch.linalg.vector_norm(wide, dim=-1, keepdim=True), self._floor)
        return (wide / length).mul_(self._scaled).to(x.dtype)


def centred_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """LayerNorm without a bias."""
    return F.layer_norm(x.float(), x.shape[-1:], weight.float(), None, eps).to(x.dtype)


Heads = tuple[Tensor, Tensor, Tensor]


class ProductFormat(Protocol):
    """How rows enter and leave a product: see `Product`."""

    @property
    def arithmetic(self) -> Arithmetic: ...

    @property
    def added(self) -> Tensor | None: ...


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a layer stores flat rows: row i of head h in row places[i row_step + h head_step] + h head_rows.

    keys, values: buffers whose rows of head_dim lie one behind the other. places: int64. varlen: what the rows attend
    by, where that is our kernel on a CPU.
    """

    keys: Tensor
    values: Tensor
    places: Tensor
    row_step: int
    head_step: int
    head_rows: int
    varlen: VarlenAttention | None = None


class StepRows(Protocol):
    """A layer of a cache: see `RollbackLayer` and `RowsLayer`."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Masks | None, scores: Scores) -> Tensor: ...

    def destination(self) -> Destination | None:
        """Where the rows of this forward go, if tensors can say it; `attend_stored` then attends from there."""
        ...

    def attend_stored(self, query: Tensor, scores: Scores) -> Tensor:
        """`attend` for rows that have been stored."""
        ...


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a block. raw and rest: what a product `of` gave, and what it left behind when rows entered it.

    Tensors are `[n, H]`, those of a product as wide as it gives them; cos and sin are `[n, 1, head_dim]`.
    """

    shape: BlockShape

    def enter(self, x: Tensor, into: ProductFormat) -> Prepared:
        """What the next product takes, first, and what leaving it needs."""
        return into.arithmetic.enter(x)

    def turn(
        self,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        cos: Tensor,
        sin: Tensor,
    ) -> Heads:
        """Queries `[n, heads, head_dim]`, keys and values `[n, kv_heads, head_dim]`; norms: of queries and of keys."""
        heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        mixed = left(raw, rest, of).to(cos.dtype).view(cos.shape[0], -1, dim)
        turning = mixed[:, : heads + kv_heads]
        q_norm, k_norm = norms
        if q_norm is not None and k_norm is not None:
            turning = torch.cat([_by_head(q_norm, turning[:, :heads]), _by_head(k_norm, turning[:, heads:])], dim=1)
        turned = torch.addcmul(turning * cos, turning.roll(dim // 2, -1), sin)
        return turned[:, :heads], turned[:, heads:], mixed[:, heads + kv_heads :]

    def attend(
        self,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        cos: Tensor,
        sin: Tensor,
        rows: StepRows,
        masks: Masks | None,
        scores: Scores,
    ) -> Tensor:
        """`turn`, then attention over these rows and those of the cache, `[n, heads * head_dim]`."""
        return rows.attend(*self.turn(raw, rest, of, norms, cos, sin), masks, scores)

    def join(
        self,
        x: Tensor,
        raw: Tensor,
        rest: Prepared,
        of: ProductFormat,
        norms: tuple[Norm | None, Norm | None],
        into: ProductFormat,
    ) -> tuple[Tensor, Prepared]:
        """The residual, and what the next product takes of its norm; norms: of what is added, and of the sum."""
        after, norm = norms
        joined = self.leave(x, raw, rest, of, after)
        return joined, into.arithmetic.enter(joined if norm is None else norm(joined))

    def leave(self, x: Tensor, raw: Tensor, rest: Prepared, of: ProductFormat, after: Norm | None = None) -> Tensor:
        """The residual alone."""
        more = left(raw, rest, of).to(x.dtype)
        if after is not None:
            more = after(more)
        return x + (more if self.shape.residual_scale == 1.0 else more * self.shape.residual_scale)

    def gate(self, raw: Tensor, rest: Prepared, of: ProductFormat, into: ProductFormat) -> Prepared:
        """The gated product of gate and up, which lie side by side, and what the next product takes of it."""
        return into.arithmetic.enter(self.gated(left(raw, rest, of)))

    def gated(self, both: Tensor) -> Tensor:
        """activation(gate) * up."""
        return gated(both, self.shape.gate)


def gated(both: Tensor, gate: str) -> Tensor:
    """activation(gate) * up of gate and up side by side, `[n, 2 I]` -> `[n, I]`; gate: one of `GATES`."""
    if gate == SILU:
        return silu_and_mul(both)
    first, second = both.chunk(2, dim=-1)
    return F.gelu(first, approximate="tanh") * second


def _by_head(norm: Norm, rows: Tensor) -> Tensor:
    """A norm of each head's part of rows `[n, heads, D]`, or of all of them as one (OLMo 2)."""
    if len(norm.weight) == rows.shape[2]:
        return norm(rows)
    return norm(rows.flatten(1)).view_as(rows)


def left(raw: Tensor, rest: Prepared, of: ProductFormat) -> Tensor:
    """What a product gave, in the numbers that the steps compute with."""
    return of.arithmetic.leave(raw, rest, of.added)
