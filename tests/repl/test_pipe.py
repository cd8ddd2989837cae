"""The session without a terminal: plain text out, a status that scripts can read."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from repl import app
from repl.loading import Loading
from repl.session import Session
from sampling.loading.pairs import LoadOptions, load_pair
from tests.forked import python
from utils.device import machine

ROOT = Path(__file__).parents[2]
Outcome = tuple[int, str, str]


@pytest.fixture
def play(
    options: LoadOptions, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Play piped bytes or a script through the session in this process: (status, stdout, stderr)."""
    # A load that still runs would end this process.
    monkeypatch.setattr(Loading, "running", False)

    def run(typed: bytes = b"", script: Path | None = None, target: str | None = None) -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
        wanted = LoadOptions(target=target) if target else options
        status = app.main(Session(Loading(load_pair, wanted)), script)
        return status, *capfd.readouterr()

    return run


def test_the_table_tells_of_other_processes(play: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)
    for busy in (False, True):
        readings = count(0.0, 1e6 if busy else 0.0)
        monkeypatch.setattr(machine, "_busy_s", lambda readings=readings: next(readings))
        status, out, _ = play(b"/length 4\nHello\n")
        assert status == 0
        assert ("other processes kept up to" in out and "during 5 of 5 runs" in " ".join(out.split())) is busy


def _infer(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [python(), "infer.py", *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, cwd=ROOT, check=False)


def test_help_imports_no_torch() -> None:
    code = (
        "import sys, runpy; sys.argv = ['infer.py', '--help']\ntry: runpy.run_path('infer.py', run_name='__main__')\n"
    )
    code += "except SystemExit as end: print(end.code, [m for m in ('torch', 'transformers') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.endswith("0 []\n") and "--script" in run.stdout


def test_the_screen_needs_no_torch() -> None:
    code = "import sys, repl.app, repl.prompt; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout == "[]\n"


def test_answers_and_table_on_stdout_the_rest_on_stderr(play: Callable[..., Outcome]) -> None:
    status, out, err = play(b"/gamma 3\n/length 12\nHello\n/quit\nnever reached\n")
    assert status == 0, err
    assert [line for line in out.splitlines() if line.startswith("[")] == [
        "[AR]",
        "[SD]",
        "[NASD]",
        "[Suffix]",
        "[Auto]",
    ]
    assert "reference" in out and "gamma 3" in out and "\x1b" not in out
    assert out.count("exact") == 4
    assert "gamma 4 -> 3" in err and "gamma 4 -> 3" not in out
    assert "Traceback" not in err


def test_a_failed_command_is_told_with_its_line_and_the_rest_goes_on() -> None:
    run = _infer(typed="/gamma x\n/gamma 2\n")
    assert run.returncode == 1
    assert "line 1: gamma: 'x' given" in run.stderr and "gamma 4 -> 2" in run.stderr


def test_a_failed_load_fails_the_prompt(play: Callable[..., Outcome], tmp_path: Path) -> None:
    status, out, err = play(b"/gamma 2\nHello\n/status\n", target=str(tmp_path / "nothing"))
    assert status == 1
    assert "line" not in err and "nothing" in err and "Traceback" not in err, "no line is to blame"
    assert "failed" in out and "gamma 4 -> 2" in err


@pytest.mark.parametrize("loads", [True, False])
def test_ctrl_c_says_what_it_stopped(
    play: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], loads: bool
) -> None:
    def wait(self: Loading, timeout: float | None = None) -> bool:
        monkeypatch.setattr(Loading, "running", loads)
        raise KeyboardInterrupt

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(Loading, "wait", wait)
    monkeypatch.setattr("os._exit", leave)
    if loads:
        with pytest.raises(SystemExit, match="130"):
            play(b"")
        assert capfd.readouterr().err == "stopped while the models were loading\n"
    else:
        assert play(b"") == (130, "", "stopped\n")


def test_a_line_that_ctrl_c_takes_back_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], idle_session: Session
) -> None:
    """The screen is imported behind the first line, which Ctrl-C then ends."""
    monkeypatch.setattr("repl.prompt.lines", lambda session: iter(["Hello"]))
    monkeypatch.setattr(Loading, "start", lambda self: None)
    monkeypatch.setattr(app, "_live_view", lambda: signal.raise_signal(signal.SIGINT))
    assert app._interact(idle_session) == 0
    assert capfd.readouterr().err == "stopped before the line was played\n"


def test_a_script_plays_and_may_not_load(play: Callable[..., Outcome], tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("/gamma 7\n")
    outer.write_text(f"# two settings\n/length 4\n/load {inner}\n/ngram off\nHello\n/debug on\nHello\n/gamma\n")
    status, out, err = play(script=outer)
    assert status == 1
    assert f"{outer}:3: a script cannot /load another one" in err
    assert "gamma is 4" in err
    assert "#1  position" in out and out.count("[SD]") == 2 and "[NASD]" not in out


def test_load_plays_from_a_pipe(play: Callable[..., Outcome], tmp_path: Path) -> None:
    saved = tmp_path / "a.session"
    status, _, err = play(f"/gamma 9\n/save {saved}\n/gamma 1\n/load {saved}\n/gamma\n".encode())
    assert status == 0
    assert "gamma is 9" in err and "0 prompts played, 0 failed" in err


def test_the_note_on_the_first_answer_is_on_the_first_only(play: Callable[..., Outcome]) -> None:
    status, out, _ = play(b"/length 3\nHello\nHello\n")
    assert status == 0
    assert out.count("our own AR") == 2 and out.count("first answer") == 1


def test_no_method_is_a_failure_that_says_what_to_do(play: Callable[..., Outcome]) -> None:
    status, out, err = play(b"/target off\n/speculative off\n/ngram off\nHello\n")
    assert status == 1 and out == ""
    assert "line 4: no method is on; switch one on with /target on" in err


def test_a_prompt_too_long_fails_and_the_next_one_works(play: Callable[..., Outcome]) -> None:
    status, out, err = play(b"/length 3\n" + b"x" * 600 + b"\nHello\n")
    assert status == 1
    assert "line 2: AR: the prompt has" in err and out.count("our own AR") == 1


@pytest.mark.parametrize("arguments", [("--nonsense",), ("--dtype", "int3"), ("--script", "/nowhere"), ("nonsense",)])
def test_a_wrong_call_is_status_2(arguments: tuple[str, ...]) -> None:
    run = _infer(*arguments)
    assert run.returncode == 2
    assert run.stderr and "Traceback" not in run.stderr


def test_a_reader_that_leaves_is_no_crash() -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "infer.py"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write("/help\n" * 50)
        process.stdin.close()
        error = process.stderr.read()
        assert process.wait() == 1
    assert "Traceback" not in error and "Exception ignored" not in error


def test_bytes_that_are_no_text_are_no_crash(play: Callable[..., Outcome]) -> None:
    status, out, _ = play(b"/length 2\nH\xff\xfe\n")
    assert status == 0 and "[SD]" in out


def test_a_pipe_that_asks_nothing_still_tells_that_the_model_cannot_be_had(play: Callable[..., Outcome]) -> None:
    status, _, err = play(b"", target="/nope")
    assert status == 1 and "error: /nope" in err
    assert play(b"")[0] == 0
