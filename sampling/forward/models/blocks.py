"""The blocks of a lean forward: fused projections, a rotary table, attention that never repeats a key.

Speculation on a small model is decided by what surrounds the matrix products. Here q, k and v are one
product, gate and up another; rotary embeddings come from a table; keys and values are written straight into the
cache, which attends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, overload

import torch
from torch import Tensor

from sampling.forward.kernels.attention import folded_mask
from sampling.forward.kernels.linear import Kernel, Product
from sampling.forward.kernels.probe import make_linear
from sampling.forward.models.steps import BlockShape, Norm, Steps


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block; `q_norm` and `k_norm` are there where the family has them."""

    attention_norm: Norm | None
    qkv: Product
    q_norm: Norm | None
    k_norm: Norm | None
    out: Product
    mlp_norm: Norm
    gate_up: Product
    down: Product

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
    compiled: Steps | None = None

    @cached_property
    def steps(self) -> Steps:
        """What happens between the products, compiled where that was asked for."""
        return self.compiled or Steps(self.shape)

    def run(
        self,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: "Attending",
        read: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """The state `[n, H]` after each block. `read`: what the first attention reads instead of its norm of x."""
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        mask = None if mask is None else folded_mask(mask, self.shape.heads // self.shape.kv_heads)
        steps, first = self.steps, self.layers[0]
        if read is None:
            read = x if first.attention_norm is None else first.attention_norm(x)
        entered = steps.enter(read, first.qkv)
        for layer, following, rows in zip(self.layers, [*self.layers[1:], None], cache.layers, strict=True):
            qkv, out, gate_up, down = layer.qkv, layer.out, layer.gate_up, layer.down
            norms = layer.q_norm, layer.k_norm
            heads = steps.turn(qkv.product(entered[0]), entered[1:], qkv, norms, cos, sin)
            entered = steps.enter(rows.attend(*heads, mask), out)
            x, entered = steps.join(x, out.product(entered[0]), entered[1:], out, layer.mlp_norm, gate_up)
            entered = steps.gate(gate_up.product(entered[0]), entered[1:], gate_up, down)
            raw = down.product(entered[0])
            if following is None:
                x = steps.leave(x, raw, entered[1:], down)
            else:
                x, entered = steps.join(x, raw, entered[1:], down, following.attention_norm, following.qkv)
            yield x

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


def fuse(weights: Weights, prefix: str, eps: float, kernel: Kernel = make_linear) -> Layer:
    """One block of the weights by their transformers names behind `prefix`, its products computed by `kernel`."""

    def norm(name: str) -> Norm | None:
        weight = weights.pop(f"{prefix}{name}.weight", None)
        return None if weight is None else Norm(weight, eps)

    def joined(*names: str) -> Product:
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
