"""Executes lines and hands what comes of them to a view."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from repl.answers import Answers
from repl.commands.table import execute
from repl.costs import GUESSED
from repl.files.user_files import log_traceback
from repl.own_settings import DEBUG, REFERENCE_TURNS, TURNS
from repl.replies import Message, Reply, SectionSheet
from repl.screen.summary import on_and_why, refused, summary
from repl.screen.view import View
from repl.session import Session
from utils.errors import UserError
from utils.text import counted

if TYPE_CHECKING:
    from rich.text import Text

    from ablation.run.job import JobOutcome
    from repl.screen.round_text import TellRound
    from sampling.pair.profile import LatencyProfile
    from utils.events import AnyRound


_CONTINUES = {
    "on": "each method continues its own answers, which may differ; /new begins another dialogue",
    REFERENCE_TURNS: "all methods continue AR's answers; /new begins another dialogue",
}


class SessionPlayer:
    """One session on one view.

    typed: lines come from a person, whose Ctrl-C skips the method under way; a script's stops the whole line.
    `failures` counts commands and generations that failed. `left`: the user is done. `interrupted`: the
    last line was stopped by Ctrl-C.
    """

    def __init__(self, session: Session, view: View, typed: bool = False) -> None:
        self.session, self.view, self._typed = session, view, typed
        self.failures = 0
        self.left = False
        self.interrupted = False
        self._playing = self._quiet = False
        self._where = ""

    def play(self, lines: Iterable[tuple[int, str]], name: str) -> list[str]:
        """Execute a script's lines, and return those: one that fails is reported with its number, the rest goes on.

        Raises `UserError` inside a script: two that load each other would never end.
        """
        if self._playing:
            raise UserError("a script cannot /load another one")
        self._playing, played = True, []
        try:
            for number, line in lines:
                if not (self._quiet and line.startswith("/")):
                    self.view.echo(line)
                self.execute(line, f"{name}:{number}: ")
                played.append(line)
                if self.left or self.interrupted:
                    break
        finally:
            self._playing = False
        return played

    def execute(self, line: str, where: str = "") -> None:
        """Execute one line and show the result; `where` is its place in a script, for messages."""
        self.interrupted, self._where = False, where
        try:
            self.session.settle()
            self._tell_refused()
            if news := self.session.costs.news():
                self.view.reply(Message(news))
            reply = execute(self, line)
            if reply is not None:
                self._confirm(reply)
        except UserError as error:
            # That the models cannot be had is not the line's fault.
            self._fail(str(error) if error is self.session.loading.error else f"{where}{error}")
        except KeyboardInterrupt:
            self.interrupted = True
        except BrokenPipeError:
            raise
        except Exception as error:
            self._fail(f"{where}{type(error).__name__}: {error} ({log_traceback(error)})")

    def _confirm(self, reply: Reply) -> None:
        """Show a reply; a script that was loaded is not heard line by line."""
        if isinstance(reply, SectionSheet) or not self._quiet:
            self.view.reply(reply)

    def load(self, name: str, lines: tuple[tuple[int, str], ...]) -> Message:
        """See `CommandHost.load`."""
        before, self._quiet = self.failures, True
        try:
            played = self.play(lines, name)
        finally:
            self._quiet = False
        commands = sum(line.startswith("/") for line in played)
        ran = f"{counted(commands, 'command')} and {counted(len(played) - commands, 'prompt')}"
        return Message(f"{name}: {ran} played, {self.failures - before} failed")

    def replace(self, path: Path, why: str, write: Callable[[], str]) -> str:
        """See `CommandHost.replace`; a script's lines are no answer."""
        answer = None if self._playing else self.view.confirm(f"{path} {why}. Replace it?")
        if answer is None:
            raise UserError(f"{path} {why}; it was left alone. Choose another name")
        return write() if answer else f"{path} was left alone"

    def answer(self, prompt: str) -> None:
        """See `CommandHost.answer`."""
        where = self._where
        self.session.refuse_nothing()
        self.wait()
        if self.session.weighs_costs() and self.session.costs.unknown():
            self.view.reply(Message(GUESSED))
        answers = self.session.ask(prompt)
        answers.skips = self._typed and not self._playing
        if answers.first:
            self._say_first()
        if (turn := len(answers.dialogue.turns)) > 1:
            self.view.reply(Message(f"turn {turn}: {_CONTINUES[self.session.show(TURNS.name)]}"))
        for name, run in answers.runs.items():
            if answers.stopped:
                break
            self._watch(answers, name)
            if name in answers.skipped and name != next(reversed(answers.runs)):
                self.view.reply(Message(f"{run.title} skipped; Ctrl-C twice stops the whole answer"))
            if name in answers.failures:
                self._fail(f"{where}{run.title}: {answers.failures[name]}")
        if answers.stopped and (left := answers.left()):
            self.view.reply(Message(f"stopped before a token: {', '.join(map(answers.title, left))}"))
        self._compare(answers)
        if stale := self.session.costs.watch(answers):
            self.view.reply(Message(stale))
        self.interrupted = answers.stopped

    def profile(self) -> "LatencyProfile":
        """See `CommandHost.profile`; the user is told where that has to be measured first."""
        if self.session.engine.profile() is None:
            self.view.reply(
                Message("measuring the costs of forwards and drafts on this machine, once; half a minute at most")
            )
        return self.session.costs.ensure()

    def _say_first(self) -> None:
        """What was mended and decided at load, unless the prompt has told it."""
        lines_first = () if self.session.greeted else (on_and_why(self.session),)
        for note in (*self.session.notes, *lines_first):
            self.view.reply(Message(note))
        self.session.greeted = True

    def _watch(self, answers: Answers, name: str) -> None:
        from sampling.measure.answer import Answer

        decode, tell = self.session.engine.text, self._teller()
        try:
            self.view.watch(answers.title(name), answers.run(name), Answer(decode), tell)
        except KeyboardInterrupt:
            answers.stop()

    def _teller(self) -> "TellRound | None":
        """How a round is told where /debug is on: every token by its name, also those that a text leaves out."""
        engine = self.session.engine
        engine.raw = None
        if not self.session.own[DEBUG.name]:
            return None
        from repl.screen.round_text import round_text
        from sampling.logits_probe import LogitsProbe
        from utils.events import Round

        raw = engine.raw = LogitsProbe()

        def tell(round: "AnyRound") -> "Text":
            before = raw.of(round) if isinstance(round, Round) else None
            return round_text(round, engine.all_text, before)

        return tell

    def count(self, outcome: "JobOutcome") -> None:
        """See `CommandHost.count`."""
        self.failures += outcome.failed
        self.interrupted = outcome.stopped

    def wait(self) -> None:
        """See `CommandHost.wait`. Ctrl-C ends the wait, not the loading."""
        try:
            self.view.wait(self.session.loading)
        except KeyboardInterrupt:
            self.view.reply(Message("no longer waiting: the models continue to load, and the next prompt waits again"))
            raise
        self._tell_refused()

    def _tell_refused(self) -> None:
        """Why other models could not be had, once; those before them are back."""
        if refusal := refused(self.session):
            self.session.loading.refused = None
            self._fail(refusal)

    def _compare(self, answers: Answers) -> None:
        """Show the table of what can be compared, and keep everything for /export."""
        from repl.exchange import exchange
        from repl.screen import tables

        lines = tables.rows(answers.comparison, answers.finished(), answers.verdicts(), answers.runs)
        disturbed = answers.disturbed()
        below = tables.notes(lines, summary(self.session), answers.first) if lines else []
        notes = [disturbed, *below] if disturbed else below
        won = tables.outcome(lines)
        if lines:
            self.view.out.print(tables.comparison_table(lines, self.view.out))
            for sentence in won:
                self.view.out.print(sentence, style="bold", markup=False, highlight=False)
            for note in notes:
                self.view.out.print(note, style="dim", markup=False, highlight=False)
            self.view.out.print()
        if answers.failures or lines:
            mode, cells = self.session.show(TURNS.name), tables.cells(lines)
            self.session.log.append(exchange(self.session.dialogues, mode, answers, cells, [*won, *notes]))

    def _fail(self, text: str) -> None:
        from repl.screen import render

        self.failures += 1
        render.problem(self.view.err, text)
