"""Gemma 1 to 3: norms of 1 + w, GELU, scaled embeddings; from Gemma 2 on norms on both sides, windows and caps."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import DecoderDescription, NormNames
from sampling.forward.models.decoders.llama import llama, with_table_by_type

_BOTH = NormNames(
    "input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm", "post_feedforward_layernorm"
)


def gemma(config: Any) -> DecoderDescription:
    """Gemma 1 (arXiv 2403.08295)."""
    decoder = llama(config)
    names = replace(decoder.names, gain=1.0)
    return replace(decoder, names=names, embedding_scale=config.hidden_size**0.5)


def gemma2(config: Any) -> DecoderDescription:
    """Gemma 2 (arXiv 2408.00118): caps on scores and logits, every other layer behind a window."""
    decoder = gemma(config)
    scale, cap = config.query_pre_attn_scalar**-0.5, config.attn_logit_softcapping
    layers = tuple(replace(layer, scores=replace(layer.scores, scale=scale, cap=cap)) for layer in decoder.layers)
    return replace(
        decoder,
        shape=replace(decoder.shape, gate=config.hidden_activation),
        layers=layers,
        names=replace(decoder.names, norms=_BOTH),
        logit_cap=config.final_logit_softcapping,
    )


def gemma3(config: Any) -> DecoderDescription:
    """Gemma 3 (arXiv 2503.19786), its text model: a rotary table for the layers behind windows, and another."""
    return with_table_by_type(gemma2(config), config)
