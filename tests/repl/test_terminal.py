"""The real program in a real terminal, as a person types."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).parents[2]
Start = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def start(checkpoints: tuple[Path, Path]) -> Iterator[Start]:
    started: list[pexpect.spawn[str]] = []
    target, drafter = checkpoints

    def run(width: int = 100, **environment: str) -> "pexpect.spawn[str]":
        arguments = ["infer.py", "--target", str(target), "--drafter", str(drafter), "--dtype", "float32"]
        child = pexpect.spawn(
            sys.executable,
            arguments,
            cwd=str(ROOT),
            env={**os.environ, "TERM": "xterm-256color", **environment},
            encoding="utf-8",
            codec_errors="replace",
            dimensions=(30, width),
            timeout=60,
        )
        started.append(child)
        child.expect("> ")
        return child

    yield run
    for child in started:
        child.close(force=True)


def _seen(child: "pexpect.spawn[str]", until: str) -> str:
    """What came before and with the text waited for, without the terminal's control sequences."""
    child.expect(until)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before + child.after)


def _leave(child: "pexpect.spawn[str]", status: int = 0) -> None:
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == status


def test_toggles_a_generation_and_ctrl_d(start: Start) -> None:
    child = start()
    child.send("/egag on\r")
    child.expect("egag off -> on")
    child.send("/length 8\r")
    child.expect("length 100 -> 8")
    child.send("/ngram\r")
    child.expect("ngram on -> off")
    child.send("Hello there\r")
    text = _seen(child, "first answer of this session")
    for part in ("8 tokens", "SD EGAG", "reference", "exact", "our own AR"):
        assert part in text
    assert "NASD" not in text.split("tok/round")[-1]
    _leave(child)


def test_nonsense_is_answered(start: Start) -> None:
    child = start()
    child.send("/gama 4\r")
    child.expect("Did you mean /gamma")
    child.send("/gamma four\r")
    assert "Traceback" not in _seen(child, "an integer of 0 or more")
    child.send("/quit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_ctrl_c_stops_a_generation_and_the_session_goes_on(start: Start) -> None:
    child = start()
    child.send("/length 480\r")
    child.expect("-> 480")
    child.send("/cache off\r")
    child.expect("cache on -> off")
    child.send("Hello there\r")
    child.expect(r"round \d+")
    child.sendintr()
    text = _seen(child, "length 480")
    assert "stopped" in text and "no speedup: the reference was stopped" in text
    child.send("/length 4\r")
    child.expect("480 -> 4")
    child.send("Hello there\r")
    assert "4 tokens" in _seen(child, "our own AR")
    _leave(child)


def test_ctrl_c_at_the_prompt_clears_the_line(start: Start) -> None:
    child = start()
    child.send("/gamma 99")
    child.sendintr()
    child.send("/gamma\r")
    child.expect("gamma is 4")
    _leave(child)


def test_ctrl_d_while_loading_leaves_at_once(start: Start) -> None:
    child = start()
    _leave(child)


def test_a_dumb_terminal_gets_plain_text(start: Start) -> None:
    child = start(TERM="dumb")
    child.send("/length 4\n")
    child.expect("-> 4")
    child.send("Hello\n")
    child.expect(r"\[NASD\]")
    child.expect("our own AR")
    child.sendeof()
    child.expect(pexpect.EOF)
    assert "\x1b" not in child.before


def test_a_narrow_terminal_is_never_overrun(start: Start) -> None:
    child = start(width=40, NO_COLOR="1")
    child.send("/length 8\r")
    child.expect("-> 8")
    child.send("Hello\r")
    text = _seen(child, "settle")
    assert "tok/round" in text and "reference" in text
    _leave(child)
