"""Executes lines and hands what comes of them to a view."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from repl.command import summary
from repl.commands import execute
from repl.replies import Ablate, Ask, Clear, Message, Play, Quit, Results, Sheet, WithModels
from repl.session import Answers, Session
from repl.user_files import log_traceback
from sampling.methods import METHODS
from utils.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from ablation.plan.file import Experiment
    from repl.answer import Answer, Decode
    from repl.loading import Loading
    from sampling.events import Event
    from sampling.measure.metrics import RunMetrics


class View(Protocol):
    """Where results go: `LiveView` or `PlainView`."""

    out: "Console"
    err: "Console"

    def echo(self, line: str) -> None: ...
    def reply(self, reply: Message | Sheet) -> None: ...
    def wait(self, loading: "Loading") -> None: ...
    def watch(
        self, title: str, run: Iterable[tuple["Event", "RunMetrics"]], answer: "Answer", label: "Decode | None"
    ) -> None:
        """Show a run and its answer; with `label`, which names a token, also a line a round."""


class Player:
    """One session on one view.

    `failures` counts commands and generations that failed. `left`: the user is done. `interrupted`: the
    last line was stopped by Ctrl-C.
    """

    def __init__(self, session: Session, view: View) -> None:
        self.session, self.view = session, view
        self.failures = 0
        self.left = False
        self.interrupted = False
        self._playing = False

    def play(self, lines: Iterable[tuple[int, str]], source: str) -> None:
        """Execute a script's lines: one that fails is reported with its number, the rest goes on.

        Raises `UserError` inside a script: two that load each other would never end.
        """
        if self._playing:
            raise UserError("a script cannot /load another one")
        self._playing = True
        try:
            for number, line in lines:
                self.view.echo(line)
                self.execute(line, f"{source}:{number}: ")
                if self.left or self.interrupted:
                    return
        finally:
            self._playing = False

    def execute(self, line: str, where: str = "") -> None:
        """Execute one line and show the result; `where` is its place in a script, for messages."""
        self.interrupted = False
        try:
            self._execute(line, where)
        except UserError as error:
            self._fail(f"{where}{error}")
        except KeyboardInterrupt:
            self.interrupted = True
        except BrokenPipeError:
            raise
        except Exception as error:
            self._fail(f"{where}{type(error).__name__}: {error} ({log_traceback(error)})")

    def _execute(self, line: str, where: str) -> None:
        match execute(self.session, line):
            case Message() | Sheet() as reply:
                self.view.reply(reply)
            case Clear():
                self.view.out.clear()
            case Quit():
                self.left = True
            case Play(path, lines):
                self._load(str(path), lines)
            case Ask(prompt):
                self._answer(prompt, where)
            case WithModels(job):
                self._wait()
                self.view.reply(Message(job()))
            case Ablate(experiment, command):
                self._ablate(experiment, command)
            case Results():
                from repl import ablate

                ablate.show_last(self.view)

    def _load(self, name: str, lines: tuple[tuple[int, str], ...]) -> None:
        before = self.failures
        self.play(lines, name)
        self.view.reply(Message(f"{name}: {len(lines)} lines, {self.failures - before} failed"))

    def _answer(self, prompt: str, where: str) -> None:
        if self.session.settings.enabled():
            self._wait()
        answers = self.session.ask(prompt)
        from repl.answer import Answer

        pair = self.session.engine.pair
        for note in self.session.notes if answers.first else ():
            self.view.reply(Message(note))
        for name in answers.methods:
            if answers.stopped:
                break
            # Round lines name every token, also the special ones that a text leaves out.
            label = pair.tokenizer.decode if self.session.debug else None
            try:
                self.view.watch(answers.title(name), answers.run(name), Answer(pair.decode), label)
            except KeyboardInterrupt:
                answers.stop()
            if name in answers.failures:
                self._fail(f"{where}{METHODS[name].title}: {answers.failures[name]}")
        if answers.stopped and (left := answers.left()):
            self.view.reply(Message(f"not run: {', '.join(map(answers.title, left))}"))
        if answers.finished():
            self._compare(answers)
        self.interrupted = answers.stopped

    def _ablate(self, experiment: "Experiment", command: str) -> None:
        self._wait()
        from repl import ablate

        outcome = ablate.run(self.session, experiment, command, self.view)
        self.failures += outcome.failed
        self.interrupted = outcome.stopped

    def _wait(self) -> None:
        try:
            self.view.wait(self.session.loading)
        except KeyboardInterrupt:
            self.left = True
            raise

    def _compare(self, answers: Answers) -> None:
        from repl import tables

        lines = tables.rows(answers.comparison, answers.finished(), answers.verdicts())
        self.view.out.print(tables.comparison_table(lines, self.view.out))
        disturbed = answers.disturbed()
        for note in (*([disturbed] if disturbed else ()), *tables.notes(lines, summary(self.session), answers.first)):
            self.view.out.print(note, style="dim", markup=False, highlight=False)
        self.view.out.print()

    def _fail(self, text: str) -> None:
        from repl import render

        self.failures += 1
        render.problem(self.view.err, text)
