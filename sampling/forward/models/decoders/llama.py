"""Llama and its relatives: two norms in front, SiLU, rotary halves. Every other description begins with this one."""

from dataclasses import replace
from typing import Any

from sampling.forward.kernels.scores import Scores
from sampling.forward.models.decoders.description import (
    BlockNames,
    DecoderDescription,
    DecoderLayer,
    head_dim_of,
    head_order,
    layer_types,
    rope_parameters,
    rotary_dim,
    windows,
)
from sampling.forward.models.steps import BlockShape


def llama(config: Any, interleaved: bool = False) -> DecoderDescription:
    """Llama, Mistral, Ministral, Qwen 2 and 3, Seed-OSS: biases, norms of heads and windows are there where they are.

    interleaved: the rotary turn pairs neighbours, not halves.
    """
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, head_dim_of(config)
    rope = rope_parameters(config)
    return DecoderDescription(
        BlockShape(heads, kv_heads, dim, getattr(config, "hidden_act", "silu")),
        tuple(DecoderLayer(Scores(window=window)) for window in windows(config)),
        getattr(config, "rms_norm_eps", 1e-6),
        config.intermediate_size,
        (rope,),
        BlockNames(
            order=head_order(dim, rotary_dim(config, rope), interleaved),
            turned=(heads + kv_heads, heads + 2 * kv_heads),
        ),
    )


def smollm3(config: Any) -> DecoderDescription:
    """SmolLM 3: some layers know no positions (NoPE)."""
    return without_rotation(llama(config), {place for place, on in enumerate(config.no_rope_layers) if not on})


def with_table_by_type(decoder: DecoderDescription, config: Any) -> DecoderDescription:
    """The same decoder, with a rotary table for each type of layer that its configuration tells apart."""
    ropes = decoder.ropes[0]
    kinds = sorted({*layer_types(config)} & {*ropes})
    if not kinds:
        return decoder
    layers = (
        replace(layer, table=kinds.index(kind)) for layer, kind in zip(decoder.layers, layer_types(config), strict=True)
    )
    return replace(decoder, layers=tuple(layers), ropes=tuple(ropes[kind] for kind in kinds))


def without_rotation(decoder: DecoderDescription, places: set[int]) -> DecoderDescription:
    """The same decoder, the layers at these places without a rotary turn."""
    layers = (replace(layer, table=None) if place in places else layer for place, layer in enumerate(decoder.layers))
    return replace(decoder, layers=tuple(layers))
