"""The decoders of encoder-decoder families, by name."""

from typing import Any

from sampling.forward.models.encoder_decoder.decoders import (
    BartDecoder,
    BigBirdPegasusDecoder,
    BlenderbotSmallDecoder,
    LedDecoder,
    M2M100Decoder,
    MarianDecoder,
    MBartDecoder,
    PegasusDecoder,
    PegasusXDecoder,
    T5Decoder,
    UMT5Decoder,
)
from sampling.forward.models.encoder_decoder.t5gemma import T5GemmaDecoder

# By a configuration's `model_type`.
FAMILIES: dict[str, type[Any]] = {
    "t5": T5Decoder,
    "mt5": T5Decoder,
    "longt5": T5Decoder,
    "umt5": UMT5Decoder,
    "bart": BartDecoder,
    "plbart": BartDecoder,
    "mvp": BartDecoder,
    "mbart": MBartDecoder,
    "led": LedDecoder,
    "marian": MarianDecoder,
    "pegasus": PegasusDecoder,
    "pegasus_x": PegasusXDecoder,
    "bigbird_pegasus": BigBirdPegasusDecoder,
    "blenderbot": PegasusDecoder,
    "blenderbot-small": BlenderbotSmallDecoder,
    "m2m_100": M2M100Decoder,
    "t5gemma": T5GemmaDecoder,
}

RECOMPUTED = ("encoder-decoder", "t5gemma2")
"""Those whose own decoder reads the answer from its start in each forward."""
