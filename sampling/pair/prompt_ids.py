"""From a conversation to the ids that a model continues."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from jinja2.meta import find_undeclared_variables

from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.tokenizer.contract import ARGUMENTS, SPECIALS, Tokenizer
from sampling.tokenizer.template import compiled
from utils.errors import UserError

# More than tokens stand for on average in any text.
_CHARACTERS_A_TOKEN = 100
# What a tokenizer fills in itself.
_FILLED = frozenset({"messages", *ARGUMENTS, *SPECIALS})


def messages_of(turns: Sequence[str], system: str | None = None) -> list[dict[str, str]]:
    """A conversation as chat templates take it: user turns and answers alternate, the first is the user's."""
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)]
    return said if system is None else [{"role": "system", "content": system}, *said]


def prompt_ids(
    tokenizer: Tokenizer,
    name: str,
    window: int,
    turns: Sequence[str],
    templated: bool,
    chat: bool,
    system: str | None = None,
    variables: TemplateVariables = UNTOLD,
) -> list[int]:
    """Ids of a prompt: user turns and answers alternate, the last turn is the user's.

    Where they are `templated`, the model's template wraps them and opens the answer; without it, or where the model
    has no template, the turns are joined by newlines and encoded as they are. name, window: of the model. chat: whether
    a template was asked for. variables: what the template is told beside the turns.
    Raises `UserError`, before the tokenizer spends minutes on it, for a text that cannot fit, and for a system
    message or variables that no template takes.
    """
    named = json.dumps(variables.named) if variables.named else ""
    refuse_long(sum(map(len, (*turns, system or "", named))), window)
    values = values_told(tokenizer, name, variables, templated, chat)
    if templated and tokenizer.chat_template:
        return list(tokenizer.encode(_in_template(tokenizer, name, turns, system, values), add_special_tokens=False))
    if system is not None:
        raise _no_system(name, _without(chat))
    return list(tokenizer.encode("\n".join(turns)))


def values_told(
    tokenizer: Tokenizer, name: str, variables: TemplateVariables, templated: bool, chat: bool
) -> dict[str, Any]:
    """The values by the names of variables that the model's template reads. Raises `UserError` as `chosen` does."""
    if not variables:
        return {}
    if not templated or not tokenizer.chat_template:
        raise UserError(f"{variables} given, and {name} {_without(chat)}; expected a model that is asked with one")
    return variables.chosen(name, read_variables(tokenizer))


def _without(chat: bool) -> str:
    """Why there is no template."""
    return "has no chat template" if chat else "is asked without its chat template"


def read_variables(tokenizer: Tokenizer) -> frozenset[str]:
    """The variables that the chat template reads and nobody else fills in. Raises `UserError` for a broken template."""
    return all_variables(tokenizer) - _FILLED - {*tokenizer.special_tokens_map}


def all_variables(tokenizer: Tokenizer) -> frozenset[str]:
    """All variables that the chat template reads. Raises `UserError` for a broken template."""
    try:
        return _variables(tokenizer.get_chat_template())
    except (TemplateError, ValueError) as error:
        raise UserError(f"the chat template cannot be read: {error}") from None


@lru_cache(maxsize=8)
def _variables(template: str) -> frozenset[str]:
    environment = compiled(template).environment
    return frozenset(find_undeclared_variables(environment.parse(template)))


def _in_template(
    tokenizer: Tokenizer, name: str, turns: Sequence[str], system: str | None, values: dict[str, Any]
) -> str:
    """The conversation in the model's template, which opens the answer."""
    try:
        without = _rendered(tokenizer, messages_of(turns), values)
    except Exception as error:
        if not values:
            raise
        raise UserError(
            f"the chat template of {name} fails with these values of {', '.join(values)}: {error}; expected other ones"
        ) from None
    if system is None:
        return without
    try:
        text = _rendered(tokenizer, messages_of(turns, system), values)
    except TemplateError:
        text = without
    if text == without and system.strip() not in text:  # refused, or left out without a word
        raise _no_system(name, "has a chat template without a place for it")
    return text


def _rendered(tokenizer: Tokenizer, messages: list[dict[str, str]], values: dict[str, Any]) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **values))


def _no_system(name: str, why: str) -> UserError:
    return UserError(
        f"the prompt has a system message, and {name} {why}; expected a prompt without one, or a "
        "model whose chat template takes it"
    )


def refuse_long(characters: int, window: int) -> None:
    """Raises `UserError` for more characters than can fit into the window."""
    if characters > _CHARACTERS_A_TOKEN * window:
        raise UserError(
            f"the prompt has {characters:,} characters; expected at most {_CHARACTERS_A_TOKEN * window:,}, as the "
            f"model's context holds {window:,} tokens"
        )
