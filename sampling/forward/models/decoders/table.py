"""The decoders that the lean forward computes: a line each."""

from collections.abc import Callable, Mapping
from typing import Any

from sampling.forward.models.decoders.cohere import cohere2
from sampling.forward.models.decoders.description import FULL, SLIDING, STATIC_ROPE, DecoderDescription, layer_types
from sampling.forward.models.decoders.exaone import exaone4
from sampling.forward.models.decoders.gemma import gemma, gemma2, gemma3
from sampling.forward.models.decoders.glm import glm4
from sampling.forward.models.decoders.granite import granite
from sampling.forward.models.decoders.llama import llama, smollm3
from sampling.forward.models.decoders.mixtures import gpt_oss, mixtral, qwen3_moe
from sampling.forward.models.decoders.olmo import olmo2, olmo3
from sampling.forward.models.decoders.phi import phi3
from sampling.forward.models.steps import GATES

DECODERS: Mapping[str, Callable[[Any], DecoderDescription]] = {
    "llama": llama,
    "internlm3": llama,
    "iquestcoder": llama,
    "mistral": llama,
    "ministral": llama,
    "ministral3": llama,
    "qwen2": llama,
    "qwen3": llama,
    "seed_oss": llama,
    "smollm3": smollm3,
    "granite": granite,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "phi3": phi3,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "exaone4": exaone4,
    "glm4": glm4,
    "cohere2": cohere2,
    "mixtral": mixtral,
    "qwen3_moe": qwen3_moe,
    "gpt_oss": gpt_oss,
}
"""By the `model_type` of a text model's configuration."""
_ARCHITECTURES = ("ForCausalLM", "ForConditionalGeneration")


def text_config(config: Any) -> Any:
    """The configuration of the text model of a checkpoint that may see as well."""
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def decoder_of(config: Any) -> DecoderDescription:
    """The description of a text model whose `model_type` is one of `DECODERS`."""
    return DECODERS[config.model_type](config)


def described(architecture: str, config: Any) -> DecoderDescription | None:
    """What the lean forward has to compute; None where it does not cover this.

    It covers attention to all rows or behind windows, rotary tables that do not change with the text, and gates of
    `GATES`, in the architectures of transformers itself.
    """
    text = text_config(config)
    if getattr(text, "model_type", "") not in DECODERS or not architecture.endswith(_ARCHITECTURES) or _foreign(config):
        return None
    if not {*layer_types(text)} <= {FULL, SLIDING} or getattr(text, "use_bidirectional_attention", False):
        return None
    decoder = decoder_of(text)
    return decoder if decoder.shape.gate in GATES and all(map(_static, decoder.ropes)) else None


def _foreign(config: Any) -> bool:
    """Whether the configuration is the code of a checkpoint."""
    return type(config).__module__.startswith("transformers_modules")


def _static(rope: Mapping[str, Any]) -> bool:
    return rope.get("rope_type", "default") in STATIC_ROPE and not rope.get("llama_4_scaling_beta")
