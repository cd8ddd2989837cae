"""Ctrl-C as a request: what runs may finish its step first."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

try:
    import termios
except ImportError:  # Windows echoes nothing while nobody reads
    termios = None  # type: ignore[assignment]


class Interrupt:
    """While entered, the first Ctrl-C sets `asked`; the second raises `KeyboardInterrupt` at once.

    Outside the main thread, where Python allows no handler, it changes nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None
        self._entered = False

    def __enter__(self) -> Self:
        self._entered = threading.current_thread() is threading.main_thread()
        if self._entered:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._entered:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Deferred(Interrupt):
    """While entered, Ctrl-C waits; it is raised at the end.

    For imports: a module of C code that was half imported cannot be imported again in the same process.
    """

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self.asked and exc[0] is None:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


class HeldInterrupt(Interrupt):
    """While entered, Ctrl-C waits; whoever handled it before hears of it at the end.

    For what others wait for in the middle: a forward of several processes.
    """

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self.asked and exc[0] is None:
            signal.raise_signal(signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


@contextlib.contextmanager
def silent_keyboard() -> Iterator[None]:
    """Keys typed meanwhile are kept for the next prompt, but not echoed into what is on the screen."""
    if termios is None or not sys.stdin.isatty():
        yield
        return
    attributes = termios.tcgetattr(sys.stdin)
    quiet = [*attributes[:3], attributes[3] & ~termios.ECHO, *attributes[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
