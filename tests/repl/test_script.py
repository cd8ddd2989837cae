"""A session saved is a session loaded."""

import errno
import io
import os
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from repl.files import script
from repl.own_settings import STATE
from repl.player import SessionPlayer
from repl.replies import Message
from repl.screen.live import LiveView
from repl.screen.plain import PlainView
from repl.session import Session
from sampling.methods.settings import BOUNDS, Settings
from tests.refusals import refused
from tests.repl.executing import execute
from utils.files import write_atomically

CHANGED = (
    "/target off", "/egag on", "/length 7", "/egag_gamma_max 9", "/egag_gamma_min 8", "/egag_ema 0",
    "/processor topknucleus 0.7 20 0.9", "/set_ngramstorage onelevel 4", "/chat off", "/debug on", "/seed 3",
)  # fmt: skip


def _state(session: Session) -> dict[str, str]:
    return {name: session.show(name) for name in STATE}


def _play(session: Session, path: Path) -> None:
    reply = execute(session, f"/load {path}")
    assert isinstance(reply, Message) and "0 failed" in reply.text


# For each two settings that bound each other, where both may stand: everything between its ends is between these.
PLACES = [
    pytest.param({low: str(at), high: str(to)}, id=f"{low} {at}, {high} {to}")
    for low, high in BOUNDS
    for at, to in ((1, 1), (1, 16), (5, 8), (16, 16))
]


@pytest.mark.parametrize("other", PLACES)
@pytest.mark.parametrize("mine", [{}, *PLACES])
def test_bounds_between_settings_refuse_no_state_that_was_saved_whole(
    mine: dict[str, str], other: dict[str, str], tmp_path: Path, idle_session: Session
) -> None:
    idle_session.assign_all(list(mine.items()))
    execute(idle_session, f"/save {tmp_path / 'a.session'}")
    second = Session(idle_session.loading)
    second.settings.assign_all(other.items())
    _play(second, tmp_path / "a.session")
    assert _state(second) == _state(idle_session)


def test_bounds_may_hang_together(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = (("num_beams", "beam_top_k"), ("beam_top_k", "max_tree_depth"), ("num_beams", "tree_width"))
    monkeypatch.setattr("sampling.methods.settings.BOUNDS", chain)
    names = ("num_beams", "beam_top_k", "max_tree_depth", "tree_width")
    states = []
    for values in ((1, 1, 2, 1), (3, 3, 64, 4), (64, 64, 64, 64), (9, 11, 12, 10)):
        states.append(Settings())
        states[-1].assign_all([(name, str(value)) for name, value in zip(names, values, strict=True)])
    for saved, start in product(states, states):
        played = Settings()
        played.assign_all((name, start.show(name)) for name in names)
        for name, text in saved.assignments():
            played.assign(name, text)
        assert dict(played) == dict(saved)


@pytest.mark.parametrize("other", [(), ("/egag_gamma_max 2",), ("/max_ngram_size 8", "/min_ngram_size 5")])
def test_a_saved_state_can_be_played_onto_any_other(
    other: tuple[str, ...], tmp_path: Path, idle_session: Session
) -> None:
    for line in CHANGED:
        execute(idle_session, line)
    saved = _state(idle_session)
    execute(idle_session, f"/save {tmp_path / 'a.session'}")
    second = Session(idle_session.loading)
    for line in other:
        execute(second, line)
    assert _state(second) != saved
    _play(second, tmp_path / "a.session")
    assert _state(second) == saved


def test_a_saved_session_is_replaced(tmp_path: Path, idle_session: Session) -> None:
    path = tmp_path / "a.session"
    execute(idle_session, f"/save {path}")
    execute(idle_session, "/gamma 9")
    assert isinstance(execute(idle_session, f"/save {path}"), Message)
    assert "/gamma 9" in path.read_text().splitlines()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("added", ["What is a suffix tree?", "# my notes", "/gamma 3"])
def test_lines_that_were_added_are_not_replaced_unasked(added: str, tmp_path: Path, idle_session: Session) -> None:
    path = tmp_path / "a.session"
    execute(idle_session, f"/save {path}")
    with path.open("a") as file:
        file.write(f"{added}\n")
    for says, kept in (("no", True), (None, True), ("", True), ("Yes", False)):
        out = Console(file=io.StringIO(), width=300)
        view = PlainView(out, out) if says is None else LiveView(out)
        player = SessionPlayer(idle_session, view)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("sys.stdin", Keyboard(f"{says}\n"))
            player.execute(f"/save {path}")
        assert (added in path.read_text().splitlines()) is kept
        assert player.failures == (says is None)
    with path.open("a") as file:
        file.write("mine\n")
    player.play([(1, f"/save {path}")], "script")
    assert player.failures == 1 and "mine" in path.read_text()


class Keyboard(io.StringIO):
    """What a person would type."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def test_a_loaded_script_is_told_in_one_line(tmp_path: Path, idle_session: Session) -> None:
    out = Console(file=io.StringIO(), width=300)
    player = SessionPlayer(idle_session, LiveView(out))
    path = tmp_path / "a.session"
    path.write_text("/gamma 3\n/gamma x\n/length 7\n/length\n")
    player.execute(f"/load {path}")
    player.execute("/gamma 5")
    assert isinstance(out.file, io.StringIO)
    assert out.file.getvalue().splitlines() == [
        f"error: {path}:2: gamma: 'x' given; expected an integer from 0 to 1024",
        f"{path}: 4 commands and 0 prompts played, 1 failed",
        "gamma 3 -> 5",
    ]


def test_any_other_file_is_left_alone(tmp_path: Path, idle_session: Session) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("years of work")
    with refused(path):
        execute(idle_session, f"/save {path}")
    assert path.read_text() == "years of work"


@pytest.mark.parametrize("name", ["", "missing/a.session"])
def test_a_place_that_cannot_be_written_is_an_error(name: str, tmp_path: Path, idle_session: Session) -> None:
    with refused(f"{tmp_path / name}: {os.strerror(errno.ENOENT)}" if name else "/save FILE"):
        execute(idle_session, f"/save {tmp_path / name}" if name else "/save")


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.session"
    path.write_text("old")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_comments_and_empty_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.session"
    path.write_text("# header\n\n/gamma 3\n  \nHello # there\n")
    assert script.read(path) == ((3, "/gamma 3"), (5, "Hello # there"))


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF\xff\xfe\x00")
    with refused(path, "UTF-8"):
        script.read(path)
