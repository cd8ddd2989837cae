"""The fields of a body, read strictly: each is known and of its type, or refused by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from serve.errors import ApiError, wrong_field
from utils.errors import UnknownName, UserError
from utils.json_text import read_json
from utils.text import quoted

T = TypeVar("T")

_KINDS: Mapping[type, str] = {
    bool: "true or false",
    str: "a text",
    int: "an integer",
    dict: "an object",
    list: "a list",
}

# What the APIs of others have and this server does not do: only the values that ask for nothing are taken.
_NOT_DONE: Mapping[str, tuple[Any, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "store": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1.0, 1),
}
_UNUSED: Mapping[str, type] = {"user": str, "metadata": dict, "safety_identifier": str, "service_tier": str}


@dataclass(frozen=True, slots=True)
class Fields:
    """The object of a body; a field that is null was not given."""

    given: Mapping[str, Any]

    @classmethod
    def read(cls, content: bytes, allowed: Sequence[str]) -> "Fields":
        """Raises `ApiError` for what is no object, for a field that is unknown, and for what is not done here."""
        try:
            body = read_json(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ApiError(400, f"the body is not UTF-8 at byte {error.start}; expected a JSON object") from None
        except UserError as error:
            raise ApiError(400, f"the body: {error}") from None
        if not isinstance(body, dict):
            raise ApiError(400, f"the body is {_kind(body)}; expected a JSON object")
        fields_given = {name: value for name, value in body.items() if value is not None}
        for name, value in fields_given.items():
            if name in allowed:
                continue
            if name in _NOT_DONE:
                if not any(type(value) is type(none) and value == none for none in _NOT_DONE[name]):
                    raise ApiError(400, f"{name}: {quoted(value)} given, which this server does not do", name)
            elif name in _UNUSED:
                if not isinstance(value, _UNUSED[name]):
                    raise wrong_field(name, value, _KINDS[_UNUSED[name]])
            else:
                raise ApiError(400, str(UnknownName("field", name, allowed)), name)
        return cls(fields_given)

    def get(self, name: str, kind: type[T], default: T) -> T:
        """A field of this type. Raises `ApiError`."""
        value = self.given.get(name, default)
        if type(value) is not kind:
            raise wrong_field(name, value, _KINDS[kind])
        return value

    def whole(self, name: str, default: int, least: int, most: int, why: str = "") -> int:
        """An integer from `least` to `most`. why: what the bound follows from. Raises `ApiError`."""
        value = self.get(name, int, default)
        if name in self.given and not least <= value <= most:
            raise wrong_field(name, value, f"an integer from {least} to {most}{why}")
        return value


def checked_ids(name: str, value: Any, vocab_size: int) -> tuple[int, ...]:
    """A field's ids of the vocabulary. Raises `ApiError`."""
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise wrong_field(name, value, "a list of token ids")
    for token in value:
        if not 0 <= token < vocab_size:
            raise wrong_field(name, token, f"ids from 0 to {vocab_size - 1}")
    return tuple(value)


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
