"""The real program without a terminal: plain text out, a status that scripts can read."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def models(checkpoints: tuple[Path, Path]) -> list[str]:
    target, drafter = checkpoints
    return ["--target", str(target), "--drafter", str(drafter), "--dtype", "float32", "--device", "cpu"]


def _infer(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "infer.py", *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


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


def test_answers_and_table_on_stdout_the_rest_on_stderr(models: list[str]) -> None:
    run = _infer(*models, typed="/gamma 3\n/length 12\nHello\n/quit\nnever reached\n")
    assert run.returncode == 0, run.stderr
    assert [line for line in run.stdout.splitlines() if line.startswith("[")] == ["[AR]", "[SD]", "[NASD]"]
    assert "reference" in run.stdout and "gamma 3" in run.stdout and "\x1b" not in run.stdout
    assert run.stdout.count("exact") == 2
    assert "gamma 4 -> 3" in run.stderr and "gamma 4 -> 3" not in run.stdout
    assert "Traceback" not in run.stderr


def test_a_failed_command_is_told_with_its_line_and_the_rest_goes_on(models: list[str]) -> None:
    run = _infer(*models, typed="/gamma x\n/gamma 2\n")
    assert run.returncode == 1
    assert "line 1: gamma: 'x' given" in run.stderr and "gamma 4 -> 2" in run.stderr


def test_a_failed_load_fails_the_prompt(tmp_path: Path) -> None:
    run = _infer("--target", str(tmp_path / "nothing"), typed="/gamma 2\nHello\n/status\n")
    assert run.returncode == 1
    assert "nothing" in run.stderr and "Traceback" not in run.stderr
    assert "failed" in run.stdout


def test_a_script_plays_and_may_not_load(models: list[str], tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("/gamma 7\n")
    outer.write_text(f"# two settings\n/length 4\n/load {inner}\n/ngram off\nHello\n/debug on\nHello\n/gamma\n")
    run = _infer(*models, "--script", str(outer))
    assert run.returncode == 1
    assert f"{outer}:3: a script cannot /load another one" in " ".join(run.stderr.split())
    assert "gamma is 4" in run.stderr
    assert "#1 pos" in run.stdout and run.stdout.count("[SD]") == 2 and "[NASD]" not in run.stdout


def test_load_plays_from_a_pipe(models: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "a.session"
    run = _infer(*models, typed=f"/gamma 9\n/save {saved}\n/gamma 1\n/load {saved}\n/gamma\n")
    assert run.returncode == 0, run.stderr
    assert "gamma is 9" in run.stderr and "0 failed" in run.stderr


@pytest.mark.parametrize("arguments", [("--nonsense",), ("--dtype", "int3"), ("--script", "/nowhere"), ("nonsense",)])
def test_a_wrong_call_is_status_2(arguments: tuple[str, ...]) -> None:
    run = _infer(*arguments)
    assert run.returncode == 2
    assert run.stderr and "Traceback" not in run.stderr


def test_a_reader_that_leaves_is_no_crash(models: list[str]) -> None:
    command = [sys.executable, "infer.py", *models]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write("/help\n" * 50 + "Hello\n")
        process.stdin.close()
        error = process.stderr.read()
        assert process.wait(timeout=60) != 0
    assert "Traceback" not in error and "Exception ignored" not in error


def test_bytes_that_are_no_text_are_no_crash(models: list[str]) -> None:
    command = [sys.executable, "infer.py", *models]
    run = subprocess.run(
        command, input=b"/length 2\nH\xff\xfe\n", capture_output=True, cwd=ROOT, timeout=120, check=False
    )
    assert run.returncode == 0 and b"[SD]" in run.stdout
