"""A lean forward for Llama-family models: fused projections, few small operations, weights shared.

Speculation on a small model is decided by what surrounds the matrix products. Here q, k and v are one
product, gate and up another; rotary embeddings come from a table; attention folds the query groups; keys
and values are written straight into the rollback cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, overload

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cache import RollbackCache
from sampling.forward.int8 import Int8Linear
from sampling.forward.linear import Kernel, Linear, make_linear
from sampling.forward.runner import Reading

if TYPE_CHECKING:  # transformers' model code costs seconds to import, and a lean model needs none of it
    from transformers import PreTrainedModel

FAMILIES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class Shape:
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
    shape: Shape

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


@dataclass(frozen=True)
class LeanModel:
    """A causal model as a list of blocks between an embedding and an output matrix.

    tied: the output matrix is the embedding.
    """

    embedding: Tensor
    blocks: Blocks
    norm: Norm
    head: Linear
    window: int
    vocab_size: int
    tied: bool

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.blocks.layers

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def output_rows(self, ids: Tensor) -> Tensor:
        """Rows `[m, H]` of the output matrix for the token ids `[m]`."""
        if self.tied:
            return self.embedding[ids]
        unit = torch.eye(self.embedding.shape[1], device=self.device, dtype=self.dtype)
        return (self.head(unit) - self.head(torch.zeros_like(unit[:1])))[:, ids].T.contiguous()

    def landmarks(self) -> dict[str, Tensor]:
        """Weights that tell this model from others: the embedding and every norm."""
        norms = {f"{place}.{name}": norm for place, layer in enumerate(self.layers) for name, norm in layer.norms()}
        return {"embedding": self.embedding, **{name: norm.weight for name, norm in norms.items()}}

    def with_kernel(self, kernel: Kernel) -> "LeanModel":
        """The same model, its products computed by another kernel."""
        return replace(self, blocks=self.blocks.with_kernel(kernel), head=self.head.with_kernel(kernel))

    @cached_property
    def int8(self) -> "LeanModel":
        """The same model with its products in int8; made once, because many layers take seconds."""
        return self.with_kernel(Int8Linear)

    def new_cache(self) -> RollbackCache:
        """See `CausalModel.new_cache`."""
        return RollbackCache(self.num_layers, self.device, self.dtype)

    def read(self, prompt: Sequence[int]) -> Reading:
        """See `CausalModel.read`."""
        return Reading(list(prompt))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Attending,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`."""
        x = F.embedding(tokens, self.embedding)
        states = {0: x} if 0 in hidden else {}
        for index, state in enumerate(self.blocks.run(x, positions, mask, cache), start=1):
            x = state
            if index in hidden and index < self.num_layers:
                states[index] = x
        if not rows and self.num_layers not in hidden:
            return x.new_empty(0, self.vocab_size), states
        final = self.norm(x)
        if self.num_layers in hidden:
            states[self.num_layers] = final
        return self.head(final[len(tokens) - rows :]), states


class Weights(Protocol):
    """Weights by their transformers names: a dict, or a file that reads them when they are taken."""

    def __contains__(self, name: object, /) -> bool: ...

    @overload
    def pop(self, name: str, /) -> Any: ...
    @overload
    def pop(self, name: str, default: Any, /) -> Any: ...


def fits(model: "PreTrainedModel") -> bool:
    """Whether the lean forward covers this model: see `covers`."""
    return covers(type(model).__name__, model.config)


def covers(architecture: str, config: Any) -> bool:
    """Whether the lean forward computes this: a known family, SiLU, full attention, static rotary table."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        architecture in FAMILIES
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") in _STATIC_ROPE
        and all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    )


def from_transformers(model: "PreTrainedModel", release: bool = False) -> LeanModel:
    """The lean form of a model that `fits`.

    release: empty the model's own weights, so that they are freed block by block while they are fused and
    the two forms never stand in memory together. The transformers model is unusable afterwards.
    """
    weights = {name: weight.detach() for name, weight in model.named_parameters(remove_duplicate=False)}
    rotary = model.model.rotary_emb
    inv_freq = rotary.inv_freq
    if release:
        model.to("meta")
    return from_weights(model.config, weights, inv_freq, rotary.attention_scaling)


def from_weights(config: Any, weights: Weights, inv_freq: Tensor, rope_scale: float = 1.0) -> LeanModel:
    """The lean form of the weights by their transformers names, which are taken out of the mapping as they are fused.

    config: what `covers` accepts. inv_freq: `[head_dim / 2]` rotary frequencies; rope_scale: factor on cos
    and sin (YaRN). A checkpoint without `lm_head.weight` ties it to the embedding.
    """
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = Shape(config.num_attention_heads, config.num_key_value_heads, head_dim)
    absent = "lm_head.weight" not in weights
    embedding = weights.pop("model.embed_tokens.weight")
    output = weights.pop("lm_head.weight", embedding)
    tied = absent or output.data_ptr() == embedding.data_ptr()
    head = make_linear(output, weights.pop("lm_head.bias", None))
    eps = config.rms_norm_eps
    layers = tuple(fuse(weights, f"model.layers.{index}.", eps) for index in range(config.num_hidden_layers))
    cos, sin = rotary_table(inv_freq, rope_scale, config.max_position_embeddings, embedding)
    norm = Norm(weights.pop("model.norm.weight"), eps)
    blocks = Blocks(layers, cos, sin, shape)
    return LeanModel(embedding, blocks, norm, head, config.max_position_embeddings, config.vocab_size, tied)


def fuse(weights: Weights, prefix: str, eps: float) -> Layer:
    """One block of the weights by their transformers names behind `prefix`."""

    def norm(name: str) -> Norm | None:
        weight = weights.pop(f"{prefix}{name}.weight", None)
        return None if weight is None else Norm(weight, eps)

    def joined(*names: str) -> Linear:
        """Linear layers of one input as one product, outputs side by side."""
        weight = torch.cat([weights.pop(f"{prefix}{name}.weight") for name in names])
        biases = [weights.pop(f"{prefix}{name}.bias") for name in names if f"{prefix}{name}.bias" in weights]
        return make_linear(weight, torch.cat(biases) if biases else None)

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
