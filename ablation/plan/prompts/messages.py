"""Conversations as chat APIs write them: a list of `{role, content}`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utils.errors import UserError, checked_text, wrong_value

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Messages:
    """What there is to play. turns: user messages that nobody has answered yet.

    given: for each of them what stands between the turn before and it: user messages and their answers, alternating.
    """

    turns: tuple[str, ...]
    given: tuple[tuple[str, ...], ...]
    system: str | None = None


def read_messages(value: Any) -> Messages:
    """A system message, if there is one, then user messages, each with its answer or without; the last is the user's.

    Raises `UserError` with the number of the message, from 1.

    Example: user a, assistant b, user c, user d -> turns (c, d), given ((a, b), ()).
    """
    if not isinstance(value, list) or not value:
        raise wrong_value("messages", value, "a list of one or more objects with role and content")
    said = [_read(message, place) for place, message in enumerate(value, start=1)]
    system = said.pop(0)[1] if said[0][0] == "system" else None
    return Messages(*_turns(said, first=2 if system is not None else 1), system)


def _read(message: Any, place: int) -> tuple[str, str]:
    """(role, content)."""
    what = f"message {place}"
    if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
        raise wrong_value(what, message, "an object with role and content")
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise wrong_value(f"{what}, role", role, f"one of {', '.join(ROLES)}")
    if not isinstance(content, str) or not content.strip():
        raise wrong_value(f"{what}, content", content, "a string that is not empty")
    return role, checked_text(content, what)


def _turns(said: Sequence[tuple[str, str]], first: int) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The user messages without an answer, and what stands before each; `first` is the number of the first message."""
    turns, given_turns = list[str](), list[tuple[str, ...]]()
    before: tuple[str, ...] = ()
    for place, (role, content) in enumerate(said):
        follows = said[place - 1][0] if place else "system" if first > 1 else "nothing"
        if role == "system":
            raise UserError(
                f"message {first + place}: a system message is not the first; expected one at the beginning"
            )
        if role == "assistant" and follows != "user":
            raise UserError(f"message {first + place}: an assistant message follows {follows}; expected a user message")
        answered = place + 1 < len(said) and said[place + 1][0] == "assistant"
        if role == "assistant" or answered:
            before = (*before, content)
        else:
            turns.append(content)
            given_turns.append(before)
            before = ()
    if before or not turns:
        last = said[-1][0] if said else "system"
        raise UserError(f"the last message is of role {last}; expected user, whom the model answers")
    return tuple(turns), tuple(given_turns)
