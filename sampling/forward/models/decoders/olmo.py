"""OLMo 2 and 3: norms behind each half of a block, and norms of all heads of queries and of keys as one."""

from dataclasses import replace
from typing import Any

from sampling.forward.models.decoders.description import DecoderDescription, NormNames
from sampling.forward.models.decoders.llama import llama, with_table_by_type

BEHIND = NormNames(None, None, "post_attention_layernorm", "post_feedforward_layernorm")


def olmo3(config: Any) -> DecoderDescription:
    """OLMo 3 (arXiv 2512.13961): windows, and a rotary table for the layers behind them."""
    return with_table_by_type(olmo2(config), config)


def olmo2(config: Any) -> DecoderDescription:
    """OLMo 2 (arXiv 2501.00656)."""
    decoder = llama(config)
    return replace(decoder, names=replace(decoder.names, norms=BEHIND), divides=False)
