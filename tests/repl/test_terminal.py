"""The real program in a real terminal, as a person types."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from tests.forked import python
from tests.waiting import PATIENCE_S
from utils.files import CACHE_VARIABLE

ROOT = Path(__file__).parents[2]
Start = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def start(checkpoints: tuple[Path, Path], tmp_path: Path) -> Iterator[Start]:
    started: list[pexpect.spawn[str]] = []
    target, drafter = checkpoints
    own = {CACHE_VARIABLE: str(tmp_path / "cache")}  # costs that are measured while the prompt waits

    def run(**environment: str) -> "pexpect.spawn[str]":
        arguments = ["infer.py", "--target", str(target), "--drafter", str(drafter), "--dtype", "float32"]
        child = pexpect.spawn(
            python(),
            arguments,
            cwd=str(ROOT),
            env={**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **own, **environment},
            encoding="utf-8",
            codec_errors="replace",
            dimensions=(30, 100),
            timeout=PATIENCE_S,
        )
        started.append(child)
        child.expect("> " if environment.get("TERM") == "dumb" else READY)
        return child

    yield run
    for child in started:
        child.close(force=True)


READY = r"\x1b\[\?2004h"  # the prompt asks for bracketed pastes when it begins to read


def _type(child: "pexpect.spawn[str]", text: str, until: str) -> str:
    """Type a line; what came before and with the text waited for, without the terminal's control sequences."""
    child.send(f"{text}\r")
    return _seen(child, until)


def _seen(child: "pexpect.spawn[str]", until: str) -> str:
    child.expect(until)
    seen = child.before + child.after
    child.expect(READY)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


def _leave(child: "pexpect.spawn[str]") -> None:
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_toggles_a_generation_ctrl_c_and_ctrl_d(start: Start) -> None:
    child = start()
    _type(child, "/egag on", "egag off -> on")
    _type(child, "/length 8", "length 100 -> 8")
    _type(child, "/ngram", "ngram on -> off")
    text = _type(child, "Hello there", "first answer of this session")
    for part in ("8 tokens", "SD EGAG", "reference", "exact", "our own AR"):
        assert part in text
    assert "NASD" not in text

    _type(child, "/length 480", "-> 480")
    _type(child, "/cache off", "cache on -> off")
    child.send("Hello there\r")
    child.expect(r"round \d+")
    child.sendintr()
    text = _seen(child, "length 480")
    assert "stopped" in text and "no speedup: the reference was stopped" in text

    _type(child, "/length 4", "480 -> 4")
    assert "4 tokens" in _type(child, "Hello there", "our own AR")
    _leave(child)


def test_the_first_line_says_what_to_do_and_then_what_is_on(start: Start) -> None:
    child = start()
    assert "Type a question" in child.before or child.expect("Type a question") == 0
    child.expect(r"AR, SD, NASD, Suffix and Auto answer it\. /help shows more\.")
    _type(child, "/length 2", "100 -> 2")
    assert "answer it" not in _type(child, "/gamma", "gamma is 4"), "once is enough"
    _leave(child)


def test_a_narrow_terminal_cuts_nothing_short(start: Start) -> None:
    child = start()
    child.setwinsize(24, 60)
    text = _type(child, "/help", "Ctrl-D quits")
    assert "draft_length" in text
    _type(child, "/length 4", "100 -> 4")
    assert "reference" in _type(child, "Hello there", "first answer of this session")
    _leave(child)


def test_nonsense_is_answered_while_the_models_load(start: Start) -> None:
    child = start()
    assert "Traceback" not in _type(child, "/gama 4", "Did you mean /gamma")
    assert "Traceback" not in _type(child, "/gamma four", "an integer from 0 to 1024")
    child.send("/gamma 99")
    child.sendintr()
    child.expect(READY)
    _type(child, "/gamma", "gamma is 4")
    _leave(child)


def test_a_dumb_terminal_gets_plain_text(start: Start) -> None:
    child = start(TERM="dumb")
    child.send("/length 4\n")
    child.expect("-> 4")
    child.send("/status all\n")
    child.expect("Generation")
    child.sendeof()
    child.expect(pexpect.EOF)
    assert "\x1b" not in child.before
