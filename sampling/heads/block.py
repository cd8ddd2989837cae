"""The decoder block that heads are made of, as a module that can be trained: Llama's, with grouped queries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.forward.models.decoders import rope
from sampling.heads.config import HeadConfig

Rows = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Self-attention whose input may be wider than the model (EAGLE-3 feeds embedding and feature).

    window: how many rows a row sees, itself included, 0 = all.
    """

    def __init__(self, config: HeadConfig, width: int, window: int = 0) -> None:
        super().__init__()
        self.window = window
        self.heads, self.kv_heads, self.dim = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(width, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, rotation: Rows, past: Sequence[Rows]) -> tuple[Tensor, Rows]:
        """`[B, T, width]` -> `[B, T, H]` and this pass's keys and values `[B, heads, T, D]`.

        past: keys and values of the earlier passes. Row t sees rows 0..t of the first pass and row t of every
        later one, itself included: the path that a draft which left the text at t has come. A window is the end of it.
        """
        batch, count, _ = x.shape
        query = turned(self.q_proj(x).view(batch, count, self.heads, self.dim), rotation).transpose(1, 2)
        group = self.heads // self.kv_heads
        keys = turned(self.k_proj(x).view(batch, count, self.kv_heads, self.dim), rotation)
        values = self.v_proj(x).view(batch, count, self.kv_heads, self.dim)
        rows_here = keys.repeat_interleave(group, 2).transpose(1, 2), values.repeat_interleave(group, 2).transpose(1, 2)
        out = (
            _attend(query, [*past, rows_here], self.window)
            if past or self.window
            else F.scaled_dot_product_attention(query, *rows_here, is_causal=True)
        )
        return self.o_proj(out.transpose(1, 2).reshape(batch, count, -1)), rows_here


def _attend(query: Tensor, passes: Sequence[Rows], window: int) -> Tensor:
    """Attention over the first pass, causal, and over one row of each later pass; window: see `Attention`."""
    (first, first_values), *later = passes
    count = query.shape[2]
    scale = query.shape[3] ** -0.5
    places = torch.arange(count, device=query.device)
    behind = places.unsqueeze(1) - places
    hidden = behind < 0
    if window:
        hidden |= behind + len(later) >= window
        later = later[-window:]
    scores = (query @ first.transpose(-1, -2) * scale).masked_fill(hidden, float("-inf"))
    lone = [(query * keys).sum(-1, keepdim=True) * scale for keys, _ in later]
    weights = torch.softmax(torch.cat([scores, *lone], dim=-1), dim=-1)
    out = weights[..., :count] @ first_values
    for place, (_, values) in enumerate(later):
        out = out + weights[..., count + place : count + place + 1] * values
    return out


def turned(x: Tensor, rotation: Rows) -> Tensor:
    """Rotary embedding of `[B, T, heads, D]` by cos and sin `[T, D]`."""
    cos, sin = (part[None, :, None, :] for part in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def frequencies(config: HeadConfig) -> tuple[Tensor, float]:
    """Rotary frequencies `[D / 2]` and the factor on cos and sin."""
    return rope.frequencies(
        {**(config.rope_scaling or {}), "rope_theta": config.rope_theta}, config.head_dim, config.window
    )


def rotations(config: HeadConfig, positions: Tensor) -> Rows:
    """cos and sin `[T, D]` for positions `[T]`."""
    inv_freq, scale = frequencies(config)
    angles = positions.float().unsqueeze(1) * inv_freq.to(positions.device)
    return torch.cat([angles.cos() * scale] * 2, dim=-1), torch.cat([angles.sin() * scale] * 2, dim=-1)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class Block(nn.Module):
    """x + attention, then x + MLP, each behind a norm."""

    def __init__(self, config: HeadConfig, width: int | None = None, input_norm: bool = True, window: int = 0) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(size, eps) if input_norm else None
        self.self_attn = Attention(config, width or size, window)
        self.post_attention_layernorm = nn.RMSNorm(size, eps)
        self.mlp = Mlp(config)

    def forward(
        self, x: Tensor, rotation: Rows, past: Sequence[Rows] = (), read: Tensor | None = None
    ) -> tuple[Tensor, Rows]:
        """`[B, T, H]` -> the same and this pass's keys and values; `read`: what attention reads instead of x."""
        if read is None:
            read = x if self.input_layernorm is None else self.input_layernorm(x)
        out, rows_here = self.self_attn(read, rotation, past)
        x = x + out
        return x + self.mlp(self.post_attention_layernorm(x)), rows_here
