"""What may follow the text before the cursor."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from repl.commands.command import GROUPS
from repl.commands.table import COMMANDS, find
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word that may replace the last `length` characters typed."""

    text: str
    length: int
    help: str = ""


def complete(text: str) -> Iterator[Suggestion]:
    """What may follow the text before the cursor: command names, then words of the argument."""
    if not text.startswith("/") or "\n" in text:
        return
    name, space, argument = text.partition(" ")
    if not space:
        for command in COMMANDS.values():
            for known in (command.name, *command.aliases):
                if known.startswith(name[1:].lower()):
                    yield Suggestion(f"/{known}", len(name), command.help)
        return
    with contextlib.suppress(UserError):
        command = find(name)
        for word in command.candidates(argument):
            yield Suggestion(word, len(argument), _described(word) if command.name == "help" else "")


def _described(topic: str) -> str:
    if topic in COMMANDS:
        return COMMANDS[topic].help
    return GROUPS[topic].help if topic in GROUPS else "all commands with their values"
