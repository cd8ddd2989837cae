"""The live view: the answer grows round by round, its numbers under it."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from repl.loading import Loading
from repl.replies import Reply
from repl.screen.round_text import TellRound
from sampling.measure.answer import Answer, Span
from sampling.measure.metrics import RunMetrics
from utils.events import AnyRound, Event, Round
from utils.interrupt import silent_keyboard
from utils.text import shown

LAST_ROUND = {"accepted": "bold green", "rejected": "strike red", "target": "bold blue"}
OLDER = {"accepted": "green", "target": ""}
END = {"stop": "end of text", "length": "length reached", "context": "context window full", None: "stopped"}


class PaintPace:
    """When to paint: at most 15 times a second, and at most a hundredth of the time, by measured cost."""

    interval_s = 1 / 15
    share = 0.01

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._next = 0.0

    def paint(self, draw: Callable[[], None]) -> None:
        """Call `draw` if it is time to."""
        start = self._clock()
        if start < self._next:
            return
        draw()
        end = self._clock()
        self._next = end + max(self.interval_s, (end - start) / self.share)


def coloured(answer: Answer) -> Text:
    """The whole answer."""
    text = Text()
    for span in answer.old:
        text.append(shown(span.text, lines=True), OLDER[span.kind])
    for span in answer.last:
        text.append(shown(span.text, lines=True), LAST_ROUND[span.kind])
    return text


def tail(answer: Answer, console: Console, height: int) -> Text:
    """The last lines of the answer that fit; costs what fits, not what was written."""
    room = height * console.width
    old: list[Span] = []
    for span in reversed(answer.old):
        if room <= 0:
            break
        old.append(span)
        room -= max(len(span.text), 1) + span.text.count("\n") * console.width // 2
    window = Answer(answer.decode, old[::-1], answer.last)
    lines = coloured(window).wrap(console, console.width)
    return Text("\n").join(lines[-height:])


def by_position(account: RunMetrics) -> str:
    """Accepted share of the drafts that were judged at each position, from the first; empty where none was."""
    rates = account.conditional_acceptance
    return f"by position {' '.join(f'{rate:.2f}' for rate in rates)}" if rates else ""


def numbers(account: RunMetrics, round: AnyRound | None) -> list[str]:
    """What stands under a growing answer; what is unknown is left out."""
    judged = round if isinstance(round, Round) else None
    facts = [
        ("{:.1f} tok/s", account.tokens_per_s),
        ("{:.1f} ms/token", account.token_ms if account.searches else None),
        ("score {:.3f}", account.score),
        ("accepted {:.0%}", account.acceptance_rate),
        ("{:.2f} tok/round", account.tokens_per_round),
        ("gamma {}", _gamma(judged) if judged else _range(account)),
        ("H {:.2f}", judged.entropy if judged else None),
        ("round {}", account.rounds or None),
    ]
    return [form.format(value) for form, value in facts if value is not None]


def _gamma(round: Round) -> str | None:
    """The length that the rule asked for; a rule or drafter that stopped earlier says so. Example: 16 (drafted 3)."""
    drafted = len(round.drafts)
    short = f" (drafted {drafted})" if 0 < drafted < round.gamma else ""
    return f"{round.gamma}{short}" if round.gamma else None


def _range(account: RunMetrics) -> str | None:
    """The draft lengths that the rule asked for, least to most; None where it drafts nothing."""
    if not account.max_gamma:
        return None
    steady = account.min_gamma == account.max_gamma
    return str(account.max_gamma) if steady else f"{account.min_gamma} to {account.max_gamma}"


class LiveView:
    """The view for terminals; `out` and `err` are the same screen."""

    def __init__(self, console: Console) -> None:
        self.out = self.err = console

    def echo(self, line: str) -> None:
        """A line of a script, as if it had been typed."""
        self.out.print(Text(f"> {shown(line)}", "bold"))

    def show_prompt(self, prompt: str) -> None:
        """A prompt that the user did not type, as if it had been typed."""
        self.echo(prompt)

    def reply(self, reply: Reply) -> None:
        """Show what a command answered."""
        from repl.screen import render

        render.show(self.out, reply)

    def confirm(self, question: str) -> bool | None:
        """Yes or no; anything else than a yes is a no."""
        if not sys.stdin.isatty():
            return None
        try:
            return self.out.input(Text(f"{shown(question)} [y/N] ")).strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def wait(self, loading: Loading) -> None:
        """Until the models are there, say what is being loaded."""
        if not loading.done:
            with silent_keyboard(), self.out.status(loading.describe()) as status:
                while not loading.wait(0.1):
                    status.update(loading.describe())

    def watch(
        self, title: str, run: Iterable[tuple[Event, RunMetrics]], answer: Answer, tell: TellRound | None
    ) -> None:
        """Show a run while it happens, then the whole answer.

        Paints between events only, when the engine's clock stands still, and from this thread only.
        """
        scene = _Scene(self.out, title, answer)
        with silent_keyboard(), Live(console=self.out, auto_refresh=False, transient=True) as live:
            pace = PaintPace()
            pace.paint(lambda: scene.draw(live))
            for event, account in run:
                scene.account = account
                if isinstance(event, AnyRound):
                    scene.add(event, tell)
                pace.paint(lambda: scene.draw(live))
            scene.print_rounds()
        answer.finish()
        if answer.begun:
            self.out.print(scene.heading())
            self.out.print(coloured(answer), end="\n\n")


@dataclass
class _Scene:
    """What a run looks like at the moment."""

    console: Console
    title: str
    answer: Answer
    account: RunMetrics = field(default_factory=RunMetrics)
    last: AnyRound | None = None
    rounds: list[Text] = field(default_factory=list)

    def add(self, round: AnyRound, tell: TellRound | None) -> None:
        self.last = round
        self.answer.add(round)
        if tell:
            self.rounds.append(tell(round))

    def draw(self, live: Live) -> None:
        self.print_rounds()
        status = self._line(numbers(self.account, self.last) if self.last else ["reading the prompt"])
        below = len(status.wrap(self.console, self.console.width))
        text = tail(self.answer, self.console, max(1, self.console.height - below - 2))
        live.update(Group(text, status), refresh=True)

    def print_rounds(self) -> None:
        """Put the debug lines that have gathered above the view."""
        if self.rounds:
            self.console.print(Text("\n").join(self.rounds))
            self.rounds.clear()

    def heading(self) -> Text:
        """What stands over the whole answer."""
        account = self.account
        facts = [f"{account.new_tokens} tokens", *numbers(account, None), END[account.finish_reason]]
        return self._line(facts)

    def _line(self, facts: list[str]) -> Text:
        """The title and facts; acceptance by position stands behind them where one line has room for all."""
        positions = by_position(self.account)
        lines = [
            Text.assemble((self.title, "bold"), "  ", (" · ".join(parts), "dim"))
            for parts in ([*facts, positions], facts)
        ]
        return lines[0] if positions and lines[0].cell_len <= self.console.width else lines[1]
