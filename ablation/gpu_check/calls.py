"""Calls of the project's own commands, each with a limit."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from utils.provenance import ROOT

_GRACE_S = 30.0
_KEPT = 6000


class CallFailed(Exception):
    """A command ended with another status than it should have; the last line that it said. A note has more."""

    @classmethod
    def of(cls, command: str, status: int, said: str) -> "CallFailed":
        last = (said.strip() or "nothing was said").splitlines()[-1]
        error = cls(f"{command} ended with {status}: {last}")
        error.add_note(said[-_KEPT:])
        return error


def environment() -> dict[str, str]:
    """That of this process, in which Python finds the project wherever it is started."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def call(words: Sequence[str], log: Path, seconds: float, allowed: Sequence[int] = (0,)) -> str:
    """Run Python with these words and return what it printed, which the log keeps as well.

    After so many seconds it is asked to stop as by Ctrl-C, and ended where that does not help. Raises `CallFailed` for
    a status that is not allowed.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background; what it begins would not hear us
        signal.signal(signal.SIGINT, signal.default_int_handler)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=environment(), stdout=file, stderr=subprocess.STDOUT
        )
        status = _waited(process, seconds)
    said = log.read_text(encoding="utf-8", errors="replace")
    if status not in allowed:
        raise CallFailed.of(" ".join(words[:3]), status, said)
    return said


def _waited(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    try:
        return process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
