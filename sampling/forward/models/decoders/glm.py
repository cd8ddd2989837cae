"""GLM-4: norms on both sides of each half, neighbours turn on a part of a head."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import DecoderDescription, NormNames
from sampling.forward.models.decoders.llama import llama

_BOTH = NormNames("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")


def glm4(config: Any) -> DecoderDescription:
    """GLM-4-0414."""
    decoder = llama(config, interleaved=True)
    names = replace(decoder.names, norms=_BOTH, gate_up=("mlp.gate_up_proj",))
    return replace(decoder, names=names, divides=False)
