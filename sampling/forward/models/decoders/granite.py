"""Granite 3 and 4 without experts: factors on embeddings, scores, residuals and logits."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import DecoderDescription
from sampling.forward.models.decoders.llama import llama


def granite(config: Any) -> DecoderDescription:
    """Granite (the factors are those of muP, arXiv 2203.03466)."""
    decoder = llama(config)
    layers = tuple(
        replace(layer, scores=replace(layer.scores, scale=config.attention_multiplier)) for layer in decoder.layers
    )
    return replace(
        decoder,
        shape=replace(decoder.shape, residual_scale=config.residual_multiplier),
        layers=layers,
        embedding_scale=config.embedding_multiplier,
        logit_scale=1.0 / config.logits_scaling,
    )
