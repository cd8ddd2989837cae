"""THE progress bar: how far a work is, with the time left; plain lines where stderr is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

SILENCE = 30.0


def stderr() -> Console:
    """Where progress is shown: stdout is for results."""
    return Console(stderr=True)


class Bar:
    """A bar with lines under it. Use it as a context; it is wiped at the end.

    Painted between pieces of work only, never by a thread that would share the machine with what is measured.
    """

    def __init__(self, console: Console, name: str = "", total: int | None = None, done: int = 0) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        named = (TextColumn("{task.description}"),) if name else ()
        self.console = console
        self._progress = Progress(*named, *columns, console=console, auto_refresh=False, speed_estimate_period=600)
        self._task = self._progress.add_task(name, total=total, completed=done)
        self._live: Live | None = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *exc: object) -> None:
        self.wipe()

    def advance(self) -> None:
        """Count a piece; the next `paint` shows it."""
        self._progress.advance(self._task)

    def tell(self, done: int, total: int) -> None:
        """How many pieces are done, of how many; the next `paint` shows it."""
        self._progress.update(self._task, completed=done, total=total)

    def paint(self, *lines: Text) -> None:
        """Show the bar with these lines under it."""
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        shown = Group(self._progress.get_renderable(), *lines)
        if self._live is not None:
            self._live.update(shown, refresh=True)
            return
        # A new one: one that goes on after a stop would begin by wiping lines that others printed meanwhile.
        # Nor is stdout, where results go, sent to this console.
        self._live = Live(shown, console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start(refresh=True)

    def wipe(self) -> None:
        """Until the next `paint` nothing of it is on the terminal, so that what others print there stays whole."""
        if self._live is not None:
            self._live.stop()
        self._live = None


def plain_line(console: Console, done: int, total: int, text: str) -> None:
    """How far a work is where there is no terminal: a line, however long."""
    console.print(f"{done:,}/{total:,} {text}".rstrip(), soft_wrap=True, markup=False, highlight=False)


@contextmanager
def told(name: str, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """A function that shows (done, total, note = "") of a work: a bar on a terminal, elsewhere a line now and then."""
    console = console or stderr()
    if console.is_terminal:
        with Bar(console, name) as bar:

            def paint(done: int, total: int, note: str = "") -> None:
                bar.tell(done, total)
                bar.paint(*([Text(note, style="dim")] if note else []))

            yield paint
        return
    said = time.monotonic()

    def line(done: int, total: int, note: str = "") -> None:
        nonlocal said
        if time.monotonic() - said > SILENCE or done >= total:
            said = time.monotonic()
            plain_line(console, done, total, f"{name}{', ' if note else ''}{note}")

    yield line
