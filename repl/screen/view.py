"""The output of a session: a screen or a pipe."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from repl.replies import Reply

if TYPE_CHECKING:
    from rich.console import Console

    from repl.loading import Loading
    from repl.screen.round_text import TellRound
    from sampling.measure.answer import Answer
    from sampling.measure.metrics import RunMetrics
    from utils.events import Event


class View(Protocol):
    """A screen or a pipe: `LiveView` or `PlainView`."""

    out: "Console"
    err: "Console"

    def echo(self, line: str) -> None:
        """Show a line of a script."""

    def show_prompt(self, prompt: str) -> None:
        """Show a prompt that the user did not type."""

    def reply(self, reply: Reply) -> None: ...
    def confirm(self, question: str) -> bool | None:
        """The user's answer; None if no user can answer."""

    def wait(self, loading: "Loading") -> None: ...
    def watch(
        self, title: str, run: Iterable[tuple["Event", "RunMetrics"]], answer: "Answer", tell: "TellRound | None"
    ) -> None:
        """Show a run and its answer; with `tell` also its rounds."""
