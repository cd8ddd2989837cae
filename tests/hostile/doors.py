"""The doors, each as a function: what is given goes in, exit status and everything printed come out."""

import io
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

import infer
from ablation.commands.shared.checked import CheckedCommand
from ablation.commands.shared.options import load_chosen
from repl.app import _run
from repl.loading import Loading
from repl.session import Session
from sampling.loading.options import load_options
from sampling.pair.pair import Pair
from scripts import report_ablation, run_ablation
from tests.tiny import tiny_pair
from utils.errors import UserError

_TINY = tiny_pair()


@dataclass(frozen=True, slots=True)
class Came:
    """What came out of a door; `crash`: the traceback of an error that nobody should see."""

    status: int
    text: str
    crash: str = ""


def loaded(given: Mapping[str, Any], *asked: Any) -> Pair:
    """What is named is loaded as ever, and a tiny pair where nothing is."""
    options = load_options(given)
    return _TINY.fresh() if options.target is None else load_chosen(given, *asked)


def _command(app: typer.Typer) -> Callable[[tuple[str, ...]], Came]:
    def invoke(arguments: tuple[str, ...]) -> Came:
        result = CliRunner().invoke(app, list(arguments))
        crash = "" if result.exception is None or isinstance(result.exception, SystemExit) else _shown(result.exception)
        return Came(result.exit_code, result.output, crash)

    return invoke


def _report() -> typer.Typer:
    app = typer.Typer()
    app.command(cls=CheckedCommand)(report_ablation.main)
    return app


def _session(lines: tuple[str, ...]) -> Came:
    """Lines from a pipe."""
    return _play(None, "".join(f"{line}\n" for line in lines))


def _script(paths: tuple[str, ...]) -> Came:
    """A script, by its path."""
    (path,) = paths
    return _play(Path(path), "")


def _play(script: Path | None, text: str) -> Came:
    said, stdin = io.StringIO(), sys.stdin
    session = Session(Loading(lambda options, progress: _TINY.fresh()))
    session.settings.assign("length", "4")
    crash, status = "", 0
    try:
        sys.stdin = io.StringIO(text)
        with redirect_stdout(said), redirect_stderr(said):
            status = _run(session, script)
    except Exception as error:
        crash = _shown(error)
    finally:
        sys.stdin = stdin
        while session.loading.running and not session.loading.wait(0.1):
            pass
    return Came(status, said.getvalue(), crash)


def call(act: Callable[[Path], object], folder: Path) -> Came:
    """A call from Python: 2 where it raises `UserError`, 0 where it returns."""
    try:
        return Came(0, str(act(folder)))
    except UserError as error:
        return Came(2, str(error))
    except Exception as error:
        return Came(1, str(error), _shown(error))


def _shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


DOORS: Mapping[str, Callable[[tuple[str, ...]], Came]] = {
    "infer": _command(infer.app),
    "ablate": _command(run_ablation.app),
    "report": _command(_report()),
    "session": _session,
    "script": _script,
}
