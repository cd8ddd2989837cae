"""What the configuration, the weights and the tokenizer of a checkpoint must hold, whatever its architecture."""

from collections.abc import Mapping, Sequence
from typing import Any

from sampling.loading.refusals.checks import has_encoder
from utils.errors import UserError, wrong_value

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings")
# Parts of the names that models give what reads images or sound, and what hands that to the text model.
_TOWERS = ("vision", "visual", "image", "audio", "speech", "modal", "projector", "connector", "aligner")
# What the configurations of parts that see or hear are called.
_SENSES: Mapping[str, Sequence[str]] = {"images": ("vision", "image", "video"), "sound": ("audio", "speech")}


def auto_class(config: Any) -> Any:
    """The transformers class that reads a checkpoint of this configuration."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoModelForCausalLM,
        AutoModelForMultimodalLM,
        AutoModelForSeq2SeqLM,
    )

    if has_encoder(config):
        return AutoModelForSeq2SeqLM
    sees = config.get_text_config() is not config and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING
    return AutoModelForMultimodalLM if sees else AutoModelForCausalLM


def refuse_sizes(name: str, config: Any) -> None:
    """Raise `UserError` for a configuration with a size that no model has; some are lists, a number a layer."""
    for key in _SIZES:
        value = getattr(config, key, None)
        if isinstance(value, bool | float | str) or (isinstance(value, int) and value < 1):
            raise wrong_value(f"{name}: {key} in config.json", value, "an integer of 1 or more")


def refuse_untrained(name: str, model: Any, loading_info: Mapping[str, Any]) -> None:
    """Raise `UserError` where a checkpoint lacks weights of its model, which transformers fills with random numbers.

    loading_info: what `from_pretrained` tells with `output_loading_info`.
    """
    trained = {weight for weight, _ in model.named_parameters()}
    missing = sorted(trained.intersection(loading_info["missing_keys"]))
    if missing:
        raise UserError(f"{name}: its weights lack {_first(missing)}; expected all that its config.json asks for")


def unused_weights(name: str, config: Any, loading_info: Mapping[str, Any]) -> str | None:
    """A note on weights of the file that the model has no place for, or None. loading_info: as above.

    Of a checkpoint that reads more than text, `reads_more` tells of those that do.
    """
    more = reads_more(name, config) is not None
    unused = sorted(key for key in loading_info["unexpected_keys"] if not (more and is_tower(key)))
    return f"{name}: its config.json has no place for {_first(unused)}: left out." if unused else None


def refuse_no_tokens(name: str, tokenizer: Any) -> None:
    """Raise `UserError` for a tokenizer without a vocabulary: transformers makes one up where its files are missing."""
    if len(tokenizer) <= len(tokenizer.added_tokens_decoder):
        raise UserError(f"{name}: its tokenizer has no vocabulary; expected a folder with a tokenizer.json")


def reads_more(name: str, config: Any) -> str | None:
    """A note on a checkpoint that reads more than text; None of one that does not."""
    senses = [sense for sense, parts in _SENSES.items() if _has_part(config, parts)]
    if not senses:
        return None
    return f"{name} also reads {' and '.join(senses)}; prompts here are text, so only its text model is used."


def is_tower(name: str) -> bool:
    """Whether a module or a weight of this name reads images or sound, or hands that to the text model."""
    return any(part in name for part in _TOWERS)


def _has_part(config: Any, parts: Sequence[str]) -> bool:
    """Whether a configuration has one for such a part, or one inside another has."""
    inner = ((key, getattr(config, key, None)) for key in getattr(config, "sub_configs", ()))
    return any(
        part is not None and (any(word in key for word in parts) or _has_part(part, parts)) for key, part in inner
    )


def _first(names: list[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
