"""What happens between the products of a block: norms, the rotary turn, the gate, residuals, and rounding.

Each step is a pure function of tensors, row by row: it takes what one product gave and ends with what the next one
takes, so that a compiler can make one loop of it.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.kernels.linear import Arithmetic, Prepared
from sampling.forward.models.swiglu import silu_and_mul


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Heads and their width."""

    heads: int
    kv_heads: int
    head_dim: int


class Norm:
    """RMSNorm, x / sqrt(mean(x^2) + eps) * weight, over the last dimension.

    On a CPU it takes four operations in float32 instead of the nine behind `F.rms_norm`:
    sqrt(|x|^2 + d eps) is hypot(|x|, sqrt(d eps)), and sqrt(d) goes into the weight.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight, self.eps = weight, eps
        self._scaled = weight.float() * len(weight) ** 0.5
        self._floor = self._scaled.new_full((), (len(weight) * eps) ** 0.5)
        self._short = weight.device.type == "cpu"

    def __call__(self, x: Tensor) -> Tensor:
        if not self._short:
            return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        wide = x.float()
        length = torch.hypot(torch.linalg.vector_norm(wide, dim=-1, keepdim=True), self._floor)
        return (wide / length).mul_(self._scaled).to(x.dtype)


Heads = tuple[Tensor, Tensor, Tensor]


class ProductFormat(Protocol):
    """How rows enter and leave a product: see `Product`."""

    @property
    def arithmetic(self) -> Arithmetic: ...

    @property
    def added(self) -> Tensor | None: ...


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
        mixed = _leave(raw, rest, of).to(cos.dtype).view(cos.shape[0], -1, dim)
        turning = mixed[:, : heads + kv_heads]
        q_norm, k_norm = norms
        if q_norm is not None and k_norm is not None:
            turning = torch.cat([q_norm(turning[:, :heads]), k_norm(turning[:, heads:])], dim=1)
        turned = torch.addcmul(turning * cos, turning.roll(dim // 2, -1), sin)
        return turned[:, :heads], turned[:, heads:], mixed[:, heads + kv_heads :]

    def join(
        self, x: Tensor, raw: Tensor, rest: Prepared, of: ProductFormat, norm: Norm | None, into: ProductFormat
    ) -> tuple[Tensor, Prepared]:
        """The residual, and what the next product takes of its norm."""
        joined = self.leave(x, raw, rest, of)
        return joined, into.arithmetic.enter(joined if norm is None else norm(joined))

    def leave(self, x: Tensor, raw: Tensor, rest: Prepared, of: ProductFormat) -> Tensor:
        """The residual alone."""
        return x + _leave(raw, rest, of).to(x.dtype)

    def gate(self, raw: Tensor, rest: Prepared, of: ProductFormat, into: ProductFormat) -> Prepared:
        """SwiGLU of gate and up, which lie side by side, and what the next product takes of it."""
        return into.arithmetic.enter(self.silu_and_mul(_leave(raw, rest, of)))

    def silu_and_mul(self, both: Tensor) -> Tensor:
        """SiLU(gate) * up."""
        return silu_and_mul(both)


def _leave(raw: Tensor, rest: Prepared, of: ProductFormat) -> Tensor:
    return of.arithmetic.leave(raw, rest, of.added)
