"""A line of the session where nobody looks."""

import io

from rich.console import Console

from repl.commands import table
from repl.player import SessionPlayer
from repl.replies import Reply
from repl.screen.plain import PlainView
from repl.session import Session


class ModelsAwaitedError(Exception):
    """A command waits for models that nobody loads here."""


class IdlePlayer(SessionPlayer):
    """A player on any session, also on one whose models are never loaded."""

    def __init__(self, session: Session) -> None:
        console = Console(file=io.StringIO())
        super().__init__(session, PlainView(console, console))

    def wait(self) -> None:
        if not (self.session.loading.running or self.session.loading.done):
            raise ModelsAwaitedError
        super().wait()


def execute(session: Session, line: str) -> Reply | None:
    """What a line comes to, as `table.execute` has it."""
    return table.execute(IdlePlayer(session), line)
