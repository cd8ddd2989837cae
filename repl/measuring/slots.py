"""Texts that are answered side by side, a line each, as they grow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ablation.plan.grid import PlannedGeneration, RowKey
from ablation.results.record import Record
from ablation.run.progress.watcher import NullWatcher
from repl.screen.live import PaintPace, coloured
from sampling.engine import Engine
from sampling.measure.answer import Answer
from sampling.measure.metrics import RunMetrics
from utils.events import Round
from utils.text import shown

_MOST_LINES = 24


@dataclass(slots=True)
class _Slot:
    """A text under way."""

    place: PlannedGeneration
    answer: Answer
    account: RunMetrics = field(default_factory=RunMetrics)


class BatchSlots(NullWatcher):
    """A table of the texts under way, painted between rounds only. Use it as a context.

    titles: what runs are called, by their names. Where there is no terminal it says nothing.
    """

    def __init__(
        self, console: Console, decode: Callable[[Sequence[int]], str], titles: Mapping[str, str], texts: int
    ) -> None:
        self._console, self._decode, self._titles, self._texts = console, decode, titles, texts
        self._slots: dict[RowKey, _Slot] = {}
        self._heading, self._over, self._failed = "", 0, 0
        self._pace = PaintPace()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, place: PlannedGeneration) -> None:
        """Another run begins with the first text."""
        name = place.configuration.name
        load = f"  {place.load.text}" if place.load else ""
        self._slots, self._over, self._failed = {}, 0, 0
        self._heading = f"{self._titles.get(name, name)}{load}"

    def prompted(
        self, place: PlannedGeneration, engine: Engine, values: Mapping[str, object], ids: Sequence[int]
    ) -> None:
        """A text takes its place."""
        self._slots[place.key] = _Slot(place, Answer(self._decode))

    def round(self, place: PlannedGeneration, round: Round) -> None:
        """A text has grown."""
        slot = self._slots[place.key]
        slot.answer.add(round)
        slot.account.add(round)
        if self._live is not None:
            self._pace.paint(self._paint)

    def ended(self, place: PlannedGeneration) -> None:
        """A text is over: its place is free."""
        self._slots.pop(place.key, None)
        self._over += 1

    def failed(self, place: PlannedGeneration, error: str) -> None:
        """A text is given up: its place is free."""
        self._slots.pop(place.key, None)
        self._failed += 1
        name = self._titles.get(place.configuration.name, place.configuration.name)
        self._console.print(Text(f"{shown(place.prompt.id)} {name} failed: {shown(error)}", style="red"))

    def record(self, record: Record) -> None:
        """What came of a text: the table at the end tells it."""

    def say(self, text: str) -> None:
        """A line above the table."""
        self._console.print(text, style="dim", markup=False, highlight=False)

    def _paint(self) -> None:
        assert self._live is not None
        failed = f", {self._failed} failed" if self._failed else ""
        told = f"  {self._over} of {self._texts} texts are whole{failed}"
        heading = Text.assemble((self._heading, "bold"), (told, "dim"))
        self._live.update(Group(heading, self._table()), refresh=True)

    def _table(self) -> Table:
        table = Table(box=None, expand=True, pad_edge=False)
        for name in ("prompt", "tokens", "tok/round", "accepted"):
            table.add_column(name, justify="left" if name == "prompt" else "right", no_wrap=True)
        table.add_column("text", no_wrap=True, ratio=1)
        room = max(10, self._console.width - 40)
        lines = min(_MOST_LINES, max(1, self._console.height - 4))
        for slot in list(self._slots.values())[:lines]:
            account = slot.account
            table.add_row(
                shown(slot.place.prompt.id)[:16],
                str(account.new_tokens),
                _number(account.tokens_per_round, "{:.2f}"),
                _number(account.acceptance_rate, "{:.0%}"),
                Text(" ").join(coloured(slot.answer).split("\n"))[-room:],
            )
        if len(self._slots) > lines:
            table.add_row(f"and {len(self._slots) - lines} more")
        return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
