"""A tiny pair, and the commands run on it in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from ablation.commands.ablate import ablate
from ablation.commands.cli import run, selftest
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.ablation.plan_files import Write
from tests.ablation.playing import play
from tests.plots import leave_undrawn
from tests.tiny import tiny_pair

Invoke = Callable[..., Result]


@pytest.fixture
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture
def invoke(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`invoke("run", "--prompt", "a")`, with the tiny pair in place of whatever would be loaded."""
    monkeypatch.setattr("ablation.commands.run.load_chosen", lambda *options: pair)
    monkeypatch.setattr("ablation.commands.selftest.load_chosen", lambda *options: pair)
    app = typer.Typer()
    app.command()(run)
    app.command()(selftest)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def call(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """The command of the batch ablation on the tiny pair: `call("--prompt", "a")`."""
    monkeypatch.setattr("ablation.commands.ablate._engine", lambda experiment: PairEngine(pair))
    app = typer.Typer()
    app.command()(ablate)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what a report says."""
    leave_undrawn(monkeypatch)


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong call must be refused before a model is loaded."""

    def load(*options: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("ablation.commands.run.load_chosen", load)


def objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of an output or a file, one a line and nothing else."""
    return [json.loads(line) for line in text.splitlines()]


def write_lines(path: Path, *lines: object) -> Path:
    """A file of these lines; what is no string is written as JSON."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write("length = 8", ...)`: the path of a plan file with one prompt of its own and these lines."""
    write_lines(tmp_path / "mine.jsonl", {"prompt": "a"})

    def write(*lines: str, prompts: str = 'prompts = ["mine.jsonl"]') -> str:
        return str(write_lines(tmp_path / "plan.toml", prompts, *lines))

    return write


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The results file of a run that nothing disturbed."""
    path = tmp_path / "whole.csv"
    play(path, trace=True)
    return path
