"""From a conversation to the ids that a model continues."""

from collections.abc import Sequence

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from utils.errors import UserError

# More than tokens stand for on average in any text.
_CHARACTERS_A_TOKEN = 100


def messages_of(turns: Sequence[str], system: str | None = None) -> list[dict[str, str]]:
    """A conversation as chat templates take it: user turns and answers alternate, the first is the user's."""
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)]
    return said if system is None else [{"role": "system", "content": system}, *said]


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    window: int,
    turns: Sequence[str],
    templated: bool,
    chat: bool,
    system: str | None = None,
) -> list[int]:
    """Ids of a prompt: user turns and answers alternate, the last turn is the user's.

    Where they are `templated`, the model's template wraps them and opens the answer; without it, or where the model
    has no template, the turns are joined by newlines and encoded as they are. name, window: of the model. chat: whether
    a template was asked for.
    Raises `UserError`, before the tokenizer spends minutes on it, for a text that cannot fit, and for a system
    message that no template takes.
    """
    _refuse_long(sum(map(len, (*turns, system or ""))), window)
    if templated and tokenizer.chat_template:
        return list(tokenizer.encode(_in_template(tokenizer, name, turns, system), add_special_tokens=False))
    if system is not None:
        raise _no_system(name, "has no chat template" if chat else "is asked without its chat template")
    return list(tokenizer.encode("\n".join(turns)))


def _in_template(tokenizer: PreTrainedTokenizerBase, name: str, turns: Sequence[str], system: str | None) -> str:
    """The conversation in the model's template, which opens the answer."""
    without = _rendered(tokenizer, messages_of(turns))
    if system is None:
        return without
    try:
        text = _rendered(tokenizer, messages_of(turns, system))
    except TemplateError:
        text = without
    if text == without and system.strip() not in text:  # refused, or left out without a word
        raise _no_system(name, "has a chat template without a place for it")
    return text


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def _no_system(name: str, why: str) -> UserError:
    return UserError(
        f"the prompt has a system message, and {name} {why}; expected a prompt without one, or a "
        "model whose chat template takes it"
    )


def _refuse_long(characters: int, window: int) -> None:
    if characters > _CHARACTERS_A_TOKEN * window:
        raise UserError(
            f"the prompt has {characters:,} characters; expected at most {_CHARACTERS_A_TOKEN * window:,}, as the "
            f"model's context holds {window:,} tokens"
        )
