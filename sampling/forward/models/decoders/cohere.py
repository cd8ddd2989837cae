"""Cohere 2 (Command R7B, Command A): attention and MLP side by side behind one LayerNorm."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import FULL, DecoderDescription, NormNames, layer_types
from sampling.forward.models.decoders.llama import llama, without_rotation


def cohere2(config: Any) -> DecoderDescription:
    """Command A (arXiv 2504.00698): neighbours turn, layers that see all know no positions, logits are scaled."""
    decoder = llama(config, interleaved=True)
    names = replace(decoder.names, norms=NormNames("input_layernorm", None), centred=True)
    decoder = replace(
        decoder,
        shape=replace(decoder.shape, parallel=True),
        names=names,
        eps=config.layer_norm_eps,
        logit_scale=config.logit_scale,
    )
    return without_rotation(decoder, {place for place, kind in enumerate(layer_types(config)) if kind == FULL})
