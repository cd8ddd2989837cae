"""The demonstration in the plain view: each prompt is printed before its answer."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from repl.demo import ACTS, play
from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.session import Session


def test_each_prompt_is_printed_before_its_answer(
    new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Console(file=io.StringIO(), width=200)
    player = SessionPlayer(new_session(), PlainView(out, Console(file=io.StringIO())))
    monkeypatch.setattr(player, "execute", lambda line: out.file.write(f"answer to {line}\n"))
    play(player)
    assert isinstance(out.file, io.StringIO)
    printed = [line for line in out.file.getvalue().splitlines() if line]
    expected = [line for act in ACTS for line in (f"> {act.prompt}", f"answer to {act.prompt}")]
    assert printed == [*expected, "answer to /why"]
