"""Checks of the arguments of `decode` and similar functions, with error messages in plain words."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.forward.runner import Runner
from sampling.verify.verifier import Verifier
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor
from utils.text import quoted

_KINDS: Mapping[str, type] = {
    "target": Runner,
    "drafter": Drafter,
    "gamma": LengthRule,
    "verifier": Verifier,
    "processor": LogitsProcessor,
    "max_new_tokens": int,
    "seed": int,
}


class WindowedModel(Protocol):
    """A model with a context window: `window` is the largest number of tokens that it holds."""

    @property
    def window(self) -> int: ...


def check_kinds(**arguments: object) -> None:
    """Raises `UserError` for the first argument whose type is wrong; arguments are passed by name."""
    for name, argument in arguments.items():
        kind = _KINDS[name]
        if not isinstance(argument, kind):
            expected = "an integer" if kind is int else f"a {kind.__name__}"
            raise UserError(f"{name} {quoted(argument)} given; expected {expected}")


def check_room(target: WindowedModel, start: Sequence[int], max_new_tokens: int) -> None:
    """Raises `UserError` for an empty text, a text that fills the context window, or fewer than one new token."""
    check_not_empty(start)
    if len(start) >= target.window:
        raise UserError(
            f"the prompt has {len(start)} tokens; the context window of {target.window} leaves no room for one more"
        )
    if max_new_tokens < 1:
        raise UserError(f"{max_new_tokens} new tokens asked for; expected 1 or more")


def check_not_empty(prompt: Sequence[int]) -> None:
    """Raises `UserError` for a prompt without a token."""
    if not prompt:
        raise UserError("the prompt is empty; expected at least one token")


def check_generation(target: Runner, generation: int) -> None:
    """Raises `UserError` if another text has begun on the runner, because the cache rows of this text are gone then."""
    if target.generation != generation:
        raise UserError("another text was begun on this runner; expected one at a time, or target.another() for each")
