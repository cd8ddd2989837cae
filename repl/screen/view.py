"""Where a session's results go."""

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

    def echo(self, line: str) -> None: ...
    def reply(self, reply: Reply) -> None: ...
    def confirm(self, question: str) -> bool | None:
        """What the user says; None where nobody can be asked."""

    def wait(self, loading: "Loading") -> None: ...
    def watch(
        self, title: str, run: Iterable[tuple["Event", "RunMetrics"]], answer: "Answer", tell: "TellRound | None"
    ) -> None:
        """Show a run and its answer; with `tell` also its rounds."""
