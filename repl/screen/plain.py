"""The view for pipes and dumb terminals: whole answers as plain text on the output, progress on the error output."""

from collections.abc import Iterable

from rich.console import Console

from repl.loading import Loading
from repl.replies import Reply, SectionSheet
from repl.screen.round_text import TellRound
from sampling.measure.answer import Answer
from sampling.measure.metrics import RunMetrics
from utils.events import AnyRound, Event
from utils.text import shown


class PlainView:
    """Answers, tables and debug lines go to `out`; confirmations, progress and errors to `err`."""

    def __init__(self, out: Console, err: Console) -> None:
        self.out, self.err = out, err

    def echo(self, line: str) -> None:
        """Nothing: the reader of a pipe or a script has the line already."""

    def show_prompt(self, prompt: str) -> None:
        """Print a prompt that the user did not type, before its answers."""
        self.out.file.write(f"> {shown(prompt)}\n\n")

    def reply(self, reply: Reply) -> None:
        """Print the reply of a command."""
        from repl.screen import render

        render.show(self.out if isinstance(reply, SectionSheet) else self.err, reply)

    def confirm(self, question: str) -> bool | None:
        """None: no user can answer, because the input holds the lines to play."""
        return None

    def wait(self, loading: Loading) -> None:
        """Until the models are loaded, print each step of the loading once."""
        said = ""
        while not loading.wait(0.1):
            if loading.message != said:
                said = loading.message
                self.err.print(said, style="dim", markup=False, highlight=False)

    def watch(
        self, title: str, run: Iterable[tuple[Event, RunMetrics]], answer: Answer, tell: TellRound | None
    ) -> None:
        """Print a run after its end if it has a token; with `tell` also its rounds while it runs."""
        for event, _ in run:
            if isinstance(event, AnyRound):
                if not answer.begun:
                    self.out.file.write(f"[{title}]\n")
                answer.add(event)
                if tell:
                    self.out.file.write(f"{tell(event).plain}\n")
        answer.finish()
        if answer.begun:
            self.out.file.write(f"{shown(answer.text, lines=True)}\n\n")
            self.out.file.flush()
