"""The blocks of a lean forward: fused projections, a rotary table, attention that never repeats a key.

Speculation on a small model is decided by what surrounds the matrix products. Here q, k and v are one
product, gate and up another; rotary embeddings come from a table; keys and values are written straight into the
cache, which attends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.kernels import make_linear
from sampling.forward.linear import Kernel, Linear


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
        self.weight, self._eps = weight, eps
        self._scaled = weight.float() * len(weight) ** 0.5
        self._floor = self._scaled.new_tensor((len(weight) * eps) ** 0.5)
        self._short = weight.device.type == "cpu"

    def __call__(self, x: Tensor) -> Tensor:
        if not self._short:
            return F.rms_norm(x, x.shape[-1:], self.weight, self._eps)
        wide = x.float()
        length = torch.hypot(torch.linalg.vector_norm(wide, dim=-1, keepdim=True), self._floor)
        return (wide / length).mul_(self._scaled).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block; `q_norm` and `k_norm` are there where the family has them."""

    attention_norm: Norm | None
    qkv: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    out: Linear
    mlp_norm: Norm
    gate_up: Linear
    down: Linear

    def norms(self) -> Iterator[tuple[str, Norm]]:
        """Those that there are, by name."""
        for name in ("attention_norm", "q_norm", "k_norm", "mlp_norm"):
            norm = getattr(self, name)
            if norm is not None:
                yield name, norm

    def with_kernel(self, kernel: Kernel) -> "Layer":
        """The same layer, its products computed by another kernel."""
        return replace(
            self,
            qkv=self.qkv.with_kernel(kernel),
            out=self.out.with_kernel(kernel),
            gate_up=self.gate_up.with_kernel(kernel),
            down=self.down.with_kernel(kernel),
        )


@dataclass(frozen=True)
class Blocks:
    """Blocks one after the other, with the rotary table `[window, head_dim]` that they share."""

    layers: tuple[Layer, ...]
    cos: Tensor
    sin: Tensor
    shape: BlockShape

    def run(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: "Attending",
        read: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The state `[n, H]` after each block. `read`: what the first attention reads instead of its norm of x."""
        rotation = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        mask = None if mask is None else mask.repeat(self.shape.heads // self.shape.kv_heads, 1)
        for layer, rows in zip(self.layers, cache.layers, strict=True):
            if read is None:
                read = x if layer.attention_norm is None else layer.attention_norm(x)
            x = x + self._attention(layer, read, rotation, mask, rows)
            x = x + self._mlp(layer, x)
            read = None
            yield x

    def with_kernel(self, kernel: Kernel) -> "Blocks":
        """The same blocks, their products computed by another kernel."""
        return replace(self, layers=tuple(layer.with_kernel(kernel) for layer in self.layers))

    def _attention(
        self, layer: Layer, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, rows: "AttendingLayer"
    ) -> Tensor:
        heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        mixed = layer.qkv(x).view(x.shape[0], -1, dim)
        turning = mixed[:, : heads + kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            turning = torch.cat([layer.q_norm(turning[:, :heads]), layer.k_norm(turning[:, heads:])], dim=1)
        cos, sin = rotation
        turned = torch.addcmul(turning * cos, turning.roll(dim // 2, -1), sin)
        return layer.out(rows.attend(turned[:, :heads], turned[:, heads:], mixed[:, heads + kv_heads :], mask))

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
        return layer.down(F.silu(gate) * up)


class AttendingLayer(Protocol):
    """Where one layer keeps keys and values."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """See `RollbackLayer.attend`."""
        ...


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


def fuse(weights: Weights, prefix: str, eps: float, kernel: Kernel = make_linear) -> Layer:
    """One block of the weights by their transformers names behind `prefix`, its products computed by `kernel`."""

    def norm(name: str) -> Norm | None:
        weight = weights.pop(f"{prefix}{name}.weight", None)
        return None if weight is None else Norm(weight, eps)

    def joined(*names: str) -> Linear:
        """Linear layers of one input as one product, outputs side by side."""
        weight = torch.cat([weights.pop(f"{prefix}{name}.weight") for name in names])
        biases = [weights.pop(f"{prefix}{name}.bias") for name in names if f"{prefix}{name}.bias" in weights]
        return kernel(weight, torch.cat(biases) if biases else None)

    return Layer(
        attention_norm=norm("input_layernorm"),
        qkv=joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        q_norm=norm("self_attn.q_norm"),
        k_norm=norm("self_attn.k_norm"),
        out=joined("self_attn.o_proj"),
        mlp_norm=Norm(weights.pop(f"{prefix}post_attention_layernorm.weight"), eps),
        gate_up=joined("mlp.gate_proj", "mlp.up_proj"),
        down=joined("mlp.down_proj"),
    )


def rotary_table(inv_freq: Tensor, scale: float, window: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin `[window, head_dim]`; sin carries the sign of the rotation, so that a roll replaces it.

    rotate_half(x) = (-x2, x1) and roll(x, D / 2) = (x2, x1): the first half of sin is negated.
    """
    positions = torch.arange(window, device=like.device, dtype=torch.float32)
    angles = positions.unsqueeze(1) * inv_freq.to(like.device, torch.float32)
    cos, sin = (angles.cos() * scale).to(like.dtype), (angles.sin() * scale).to(like.dtype)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
