"""EXAONE 4: norms behind each half of a block, norms of heads, and no positions in layers that see all."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import FULL, DecoderDescription, layer_types
from sampling.forward.models.decoders.llama import llama, without_rotation
from sampling.forward.models.decoders.olmo import BEHIND


def exaone4(config: Any) -> DecoderDescription:
    """EXAONE 4.0 (arXiv 2507.11407)."""
    decoder = llama(config)
    decoder = replace(decoder, names=replace(decoder.names, norms=BEHIND))
    if config.sliding_window is None:
        return decoder
    return without_rotation(decoder, {place for place, kind in enumerate(layer_types(config)) if kind == FULL})
