"""Rotary frequencies, and the tables of cos and sin that blocks read."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sampling.forward.models.blocks import RotaryTable, rotary_table
from sampling.forward.models.decoders.description import DecoderDescription


def tables(decoder: DecoderDescription, window: int, like: Tensor) -> tuple[RotaryTable, ...]:
    """A table for each of the decoder's ropes, and behind them one without a rotation where a layer has none."""
    dim = decoder.shape.head_dim
    made = [rotary_table(*frequencies(rope, dim, window), window, like, dim) for rope in decoder.ropes]
    if any(layer.table is None for layer in decoder.layers):
        still = like.new_ones(1, dim).expand(window, dim), like.new_zeros(1, dim).expand(window, dim)
        made.append(still)
    return tuple(made)


def frequencies(rope: Mapping[str, Any], head_dim: int, window: int) -> tuple[Tensor, float]:
    """Frequencies `[turned / 2]`, and a factor on cos and sin.

    rope: what configurations call `rope_parameters`. Plain ones are computed here, since a converted checkpoint loads
    without transformers' model code.
    """
    kind = rope.get("rope_type", "default")
    if kind in ("default", "linear"):
        turned = int(head_dim * (rope.get("partial_rotary_factor") or 1.0))
        steps = torch.arange(0, turned, 2, dtype=torch.float32) / turned
        plain = 1.0 / rope["rope_theta"] ** steps
        return (plain / rope["factor"] if kind == "linear" else plain), 1.0
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    like = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=window,
        rope_parameters=dict(rope),
    )
    inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](like, torch.device("cpu"))
    return inv_freq, scale
