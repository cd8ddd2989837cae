"""Texts and chats as token ids, and ids as text, in the shapes of vLLM's `/tokenize` and `/detokenize`."""

from typing import Any, Protocol

from serve.errors import refused_as, wrong_field
from serve.requests.body import TEMPLATE, Model, chat_ids, check_model
from serve.requests.fields import Fields, checked_ids
from serve.requests.tools import TOOLS, requested_tools
from utils.errors import checked_text

_OF_TEXT = ("model", "prompt", "add_special_tokens", "return_token_strs")
_OF_CHAT = ("model", "messages", "add_generation_prompt", "return_token_strs", TOOLS, *TEMPLATE)
_IDLE = {"add_special_tokens": False, "continue_final_message": False}


class ServedTokenizer(Protocol):
    """What these routes ask of a tokenizer."""

    def encode_text(self, text: str, special: bool) -> list[int]: ...

    def decode_all(self, ids: Any) -> str: ...

    def names(self, ids: Any) -> list[str]: ...


def tokenized(content: bytes, model: Model, tokens: ServedTokenizer) -> dict[str, Any]:
    """The answer of `/tokenize`. Raises `ApiError`."""
    fields = Fields.read(content, (*dict.fromkeys((*_OF_TEXT, *_OF_CHAT, *_IDLE)),))
    check_model(fields, model)
    both = [name for name in ("prompt", "messages") if name in fields.given]
    if len(both) != 1:
        raise wrong_field("prompt", " and ".join(both) or None, "prompt, a text, or messages")
    ids = _chat(fields, model) if both == ["messages"] else _text(fields, tokens)
    shown = tokens.names(ids) if fields.get("return_token_strs", bool, False) else None
    return {"count": len(ids), "max_model_len": model.window, "tokens": ids, "token_strs": shown}


def detokenized(content: bytes, model: Model, tokens: ServedTokenizer) -> dict[str, Any]:
    """The answer of `/detokenize`. Raises `ApiError`."""
    fields = Fields.read(content, ("model", "tokens"))
    check_model(fields, model)
    return {"prompt": tokens.decode_all(checked_ids("tokens", fields.given.get("tokens"), model.vocab_size))}


def _text(fields: Fields, tokens: ServedTokenizer) -> list[int]:
    _refuse_others(fields, _OF_TEXT, "prompt")
    text, special = fields.get("prompt", str, ""), fields.get("add_special_tokens", bool, True)
    return tokens.encode_text(refused_as("prompt", lambda: checked_text(text, "prompt")), special)


def _chat(fields: Fields, model: Model) -> list[int]:
    _refuse_others(fields, (*_OF_CHAT, *_IDLE), "messages")
    for name, value in _IDLE.items():
        if fields.get(name, bool, value) != value:
            raise wrong_field(name, fields.given[name], "false, as the template has all of it")
    return chat_ids(fields, model, requested_tools(fields), fields.get("add_generation_prompt", bool, True))


def _refuse_others(fields: Fields, known: tuple[str, ...], beside: str) -> None:
    for name in fields.given:
        if name not in known:
            raise wrong_field(name, fields.given[name], f"none beside {beside}")
