"""The session as a program: interactive on a terminal, line by line from a pipe or a script."""

import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from repl.files import script
from repl.player import SessionPlayer
from repl.session import Session
from utils.errors import UserError
from utils.interrupt import Deferred
from utils.text import shown

if TYPE_CHECKING:
    from rich.console import Console

    from repl.screen.live import LiveView
    from repl.screen.plain import PlainView

FAILED, WRONG_CALL, INTERRUPTED = 1, 2, 130
_PIPE_WIDTH = 100


def main(session: Session, script_file: Path | None = None, demo: bool = False) -> int:
    """Run a session until its lines end, or the demonstration; the process's exit status.

    A pipe's and a script's status is 1 when a command or a generation failed; a person has seen it happen.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    loading = session.loading
    try:
        status = _demonstrate(session) if demo else _run(session, script_file)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output is gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = FAILED
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped{' while the models were loading' if loading.running else ''}\n")
        status = INTERRUPTED
    if loading.running:
        # An import under way in a thread cannot be stopped, and must not meet a dying interpreter.
        sys.stderr.flush()
        os._exit(status)
    return status


def _smart() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _demonstrate(session: Session) -> int:
    from repl.demo import play

    session.loading.start()
    player = SessionPlayer(session, _live_view() if _smart() else _plain_view())
    play(player)
    return _status(player)


def _run(session: Session, script_file: Path | None) -> int:
    smart = _smart()
    if script_file is not None:
        return _play_script(session, script_file, smart)
    if smart and sys.stdin.isatty():
        return _interact(session)
    return _read_lines(session)


def _interact(session: Session) -> int:
    from repl import prompt

    session.loading.start()
    player: SessionPlayer | None = None
    for line in prompt.lines(session):
        try:
            with Deferred():
                player = player or SessionPlayer(session, _live_view(), typed=True)
        except KeyboardInterrupt:
            sys.stderr.write("stopped before the line was played\n")
            continue
        player.execute(line)
        if player.left:
            return INTERRUPTED if player.interrupted else 0
    return 0


def _play_script(session: Session, path: Path, smart: bool) -> int:
    try:
        lines = script.read(path)
    except UserError as error:
        sys.stderr.write(f"error: {shown(error, lines=True)}\n")
        return WRONG_CALL
    session.loading.start()
    player = SessionPlayer(session, _live_view() if smart else _plain_view())
    player.play(lines, str(path))
    return _status(player)


def _read_lines(session: Session) -> int:
    """Lines from a pipe, or typed on a terminal that can do nothing but print."""
    typed = sys.stdin.isatty()
    session.loading.start()
    player = SessionPlayer(session, _plain_view(), typed=typed)
    number = 0
    for number, line in enumerate(_stdin(prompting=typed), start=1):
        player.execute(line, "" if typed else f"line {number}: ")
        if player.left or (player.interrupted and not typed):
            break
    if not number and not typed:
        return _loaded(session)
    return 0 if typed else _status(player)


def _loaded(session: Session) -> int:
    """Whether the models can be had, where nothing was asked of them."""
    try:
        session.loading.engine()
    except UserError as error:
        sys.stderr.write(f"error: {shown(error, lines=True)}\n")
        return FAILED
    return 0


def _stdin(prompting: bool) -> Iterator[str]:
    while True:
        if prompting:
            sys.stderr.write("> ")
            sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            if not prompting:
                raise
            sys.stderr.write("\n")
            continue
        if not line:
            return
        yield line.rstrip("\r\n")


def _status(player: SessionPlayer) -> int:
    if player.interrupted:
        return INTERRUPTED
    return FAILED if player.failures else 0


def _live_view() -> "LiveView":
    from rich.console import Console

    from repl.screen.live import LiveView

    return LiveView(Console(highlight=False))


def _plain_view() -> "PlainView":
    from repl.screen.plain import PlainView

    return PlainView(_plain_console(sys.stdout), _plain_console(sys.stderr))


def _plain_console(stream: TextIO) -> "Console":
    from rich.console import Console

    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) > 0 else _PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, force_terminal=False)
