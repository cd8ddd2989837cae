"""Phi-3 and Phi-4: queries, keys and values in one weight, gate and up in another."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import DecoderDescription
from sampling.forward.models.decoders.llama import llama


def phi3(config: Any) -> DecoderDescription:
    """Phi-3 (arXiv 2404.14219) and Phi-4."""
    decoder = llama(config)
    names = replace(decoder.names, qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))
    return replace(decoder, names=names, divides=False)
