"""Executes lines and hands what comes of them to a view."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from repl.commands.table import execute
from repl.costs import GUESSED
from repl.orders import Ablate, Ask, Batch, Clear, Play, Quit, Replace, Results, Why, WithCosts, WithModels
from repl.replies import Message, Reply, Sheet
from repl.session import DEBUG, REFERENCE_TURNS, TURNS, Answers, Session
from repl.summary import on_and_why, summary
from repl.user_files import log_traceback
from repl.view import View
from utils.errors import UserError
from utils.interrupt import Deferred
from utils.text import counted

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from ablation.plan.prompt_file import Prompt
    from repl.round_line import Line
    from sampling.profile import LatencyProfile
    from utils.events import AnyRound


_CONTINUES = {
    "on": "each method continues its own answers, which may differ; /new begins another dialogue",
    REFERENCE_TURNS: "all methods continue AR's answers; /new begins another dialogue",
}


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
        self._playing = self._quiet = False

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
        self.interrupted = False
        try:
            self.session.settle()
            if news := self.session.costs.news():
                self.view.reply(Message(news))
            self._execute(line, where)
        except UserError as error:
            # That the models cannot be had is not the line's fault.
            self._fail(str(error) if error is self.session.loading.error else f"{where}{error}")
        except KeyboardInterrupt:
            self.interrupted = True
        except BrokenPipeError:
            raise
        except Exception as error:
            self._fail(f"{where}{type(error).__name__}: {error} ({log_traceback(error)})")

    def _execute(self, line: str, where: str) -> None:
        match execute(self.session, line):
            case Message() | Sheet() as reply:
                self._confirm(reply)
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
                self._confirm(Message(job()))
            case WithCosts(page):
                self._wait()
                self._confirm(page(self._costs()))
            case Replace(path, why, job):
                self._confirm(Message(self._replace(path, why, job)))
            case Ablate(name, experiment):
                self._ablate(name, experiment)
            case Batch(prompts, size):
                self._answer_many(prompts, size)
            case Results():
                with Deferred():
                    from repl import ablate

                ablate.show_last(self.view)
            case Why(run):
                self._explain(run)

    def _confirm(self, reply: Reply) -> None:
        """Show a reply; a script that was loaded is not heard line by line."""
        if isinstance(reply, Sheet) or not self._quiet:
            self.view.reply(reply)

    def _load(self, name: str, lines: tuple[tuple[int, str], ...]) -> None:
        before, self._quiet = self.failures, True
        try:
            played = self.play(lines, name)
        finally:
            self._quiet = False
        commands = sum(line.startswith("/") for line in played)
        ran = f"{counted(commands, 'command')} and {counted(len(played) - commands, 'prompt')}"
        self.view.reply(Message(f"{name}: {ran} played, {self.failures - before} failed"))

    def _replace(self, path: Path, why: str, job: Callable[[], str]) -> str:
        """Ask before a file is written over; a script's lines are no answer. Raises `UserError`."""
        answer = None if self._playing else self.view.confirm(f"{path} {why}. Replace it?")
        if answer is None:
            raise UserError(f"{path} {why}; it was left alone. Choose another name")
        return job() if answer else f"{path} was left alone"

    def _answer(self, prompt: str, where: str) -> None:
        self.session.refuse_nothing()
        self._wait()
        if self.session.weighs_costs() and self.session.costs.unknown():
            self.view.reply(Message(GUESSED))
        answers = self.session.ask(prompt)
        if answers.first:
            self._say_first()
        if (turn := len(answers.dialogue.turns)) > 1:
            self.view.reply(Message(f"turn {turn}: {_CONTINUES[self.session.show(TURNS.name)]}"))
        for name, run in answers.runs.items():
            if answers.stopped:
                break
            self._watch(answers, name)
            if name in answers.failures:
                self._fail(f"{where}{run.title}: {answers.failures[name]}")
        if answers.stopped and (left := answers.left()):
            self.view.reply(Message(f"stopped before a token: {', '.join(map(answers.title, left))}"))
        self._compare(answers)
        if stale := self.session.costs.watch(answers):
            self.view.reply(Message(stale))
        self.interrupted = answers.stopped

    def _costs(self) -> "LatencyProfile":
        """What rounds cost here; the user is told where that has to be measured first."""
        if self.session.engine.profile() is None:
            self.view.reply(Message("measuring what forwards and drafts cost here, once; half a minute at most"))
        return self.session.costs.ensure()

    def _say_first(self) -> None:
        """What was mended and decided at load, unless the prompt has told it."""
        told = () if self.session.greeted else (on_and_why(self.session),)
        for note in (*self.session.notes, *told):
            self.view.reply(Message(note))
        self.session.greeted = True

    def _watch(self, answers: Answers, name: str) -> None:
        from sampling.measure.answer import Answer

        decode, line = self.session.engine.pair.decode, self._round_line()
        try:
            self.view.watch(answers.title(name), answers.run(name), Answer(decode), line)
        except KeyboardInterrupt:
            answers.stop()

    def _round_line(self) -> "Line | None":
        """How a round is told where /debug is on: every token by its name, also those that a text leaves out."""
        engine = self.session.engine
        engine.raw = None
        if not self.session.own[DEBUG.name]:
            return None
        from repl.round_line import round_line
        from sampling.raw import Raw
        from utils.events import Round

        raw = engine.raw = Raw()

        def line(round: "AnyRound") -> str:
            before = raw.of(round) if isinstance(round, Round) else None
            return round_line(round, engine.pair.tokenizer.decode, before)

        return line

    def _ablate(self, name: str, experiment: "Experiment") -> None:
        begun = self.session.start is not None
        self._wait()
        self.session.settle()
        with Deferred():
            from repl import ablate, plan

        if not begun:  # what is on has been decided since
            experiment = plan.read(self.session, name)
        if plan.takes_runs(self.session, name):
            names = ", ".join(configuration.name for configuration in experiment.plan.configurations)
            named = f"/ablate {plan.DEFAULT_PLAN}"
            self.view.reply(Message(f"the prompts of {plan.DEFAULT_PLAN} for {names}; {named} runs that plan as it is"))
        try:
            outcome = ablate.run_plan(self.session, experiment, f"/ablate {name}".rstrip(), self.view)
        except KeyboardInterrupt:
            self.view.reply(Message("stopped at once; /results reports what has been measured"))
            raise
        self.failures += outcome.failed
        self.interrupted = outcome.stopped

    def _answer_many(self, prompts: "tuple[Prompt, ...]", size: int) -> None:
        self.session.refuse_nothing()
        self._wait()
        with Deferred():
            from repl import batch

        outcome = batch.answer(self.session, prompts, size, self.view)
        self.failures += outcome.failed
        self.interrupted = outcome.stopped

    def _wait(self) -> None:
        """Until the models are there. Ctrl-C ends the wait, not the loading."""
        try:
            self.view.wait(self.session.loading)
        except KeyboardInterrupt:
            self.view.reply(Message("not waited for: the models go on loading, and the next prompt waits again"))
            raise

    def _compare(self, answers: Answers) -> None:
        """Show the table of what can be compared, and keep everything for /export."""
        from repl import tables
        from repl.exchange import exchange

        lines = tables.rows(answers.comparison, answers.finished(), answers.verdicts(), answers.runs)
        disturbed = answers.disturbed()
        told = tables.notes(lines, summary(self.session), answers.first) if lines else []
        notes = [disturbed, *told] if disturbed else told
        if lines:
            self.view.out.print(tables.comparison_table(lines, self.view.out))
            for note in notes:
                self.view.out.print(note, style="dim", markup=False, highlight=False)
            self.view.out.print()
        if answers.failures or lines:
            self.session.log.append(exchange(self.session, answers, tables.cells(lines), notes))

    def _explain(self, run: str) -> None:
        """Where the time of the last answer went. Raises `UserError` before the first one."""
        if self.session.answers is None:
            raise UserError("/why: nothing was answered yet; type a prompt first")
        from repl import why

        self.view.out.print(why.page(self.session.answers, run, self.view.out))

    def _fail(self, text: str) -> None:
        from repl import render

        self.failures += 1
        render.problem(self.view.err, text)
