"""Why some families do not run here, in words for people; other reasons are found in configurations or by trying."""

from typing import Any

_CAPACITY = "its experts take only so many tokens of a forward, so that what a token gets depends on drafts beside it"
_SOUND = "its encoder reads sound, not text"

_FAMILIES = {
    "xlnet": "it writes text in permuted orders and keeps states of its own instead of keys and values",
    "recurrent_gemma": "it keeps its states in its layers, where one text fits and a draft cannot be taken back",
    "blt": "it cuts a text into patches of bytes, whose last one changes with the bytes behind it",
    "xlm": "it fills in a mask that it puts behind the text, and does not go on behind it",
    "reformer": "its attention sorts the whole text into chunks, so that a token's scores depend on later ones",
    "switch_transformers": _CAPACITY,
    "nllb-moe": _CAPACITY,
    "fsmt": "its decoder takes neither positions nor a mask, which drafts need",
    "prophetnet": "its decoder runs streams that look several tokens ahead, beside the one that writes",
    "whisper": _SOUND,
    "speech_to_text": _SOUND,
}


def known_reason(config: Any) -> str | None:
    """Why a model of this configuration is known not to run; None where nothing is known against it."""
    if config.model_type == "mvp" and config.use_prompt:
        return "it puts prompts of its own before each layer's keys (use_prompt)"
    return _FAMILIES.get(config.model_type)
