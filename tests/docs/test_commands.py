"""Every command on the pages runs, or is checked as far as is cheap: commands.py says which and why.

One that runs is as it is written, but for what takes the time and changes no path through the program: it writes a few
tokens, plays the three shortest prompts of a set, times a round or two, and draws the plots of one report. All models
are small.
"""

import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from ablation.plan.prompts.sets import find_sources
from tests.docs.commands import Command, Kind, commands, exists
from tests.plots import leave_undrawn
from tests.tiny import llama, save_checkpoint, save_gguf

COMMANDS = commands()
LENGTH, PROMPTS, SHORT = "--length", "--prompts", "4"
SESSION = "/length 4\nSay hello.\n"
# Scripts that write into the project, and the name of the folder that they write to.
WRITERS = {"scripts/draw_book.py": "OUT", "scripts/generate_docs.py": "DOCS"}


class ModelsWanted(Exception):
    """A command has checked everything, and would load its models."""


def of_kind(kind: Kind) -> pytest.MarkDecorator:
    """The test runs for each command of the kind."""
    chosen = [command for command in COMMANDS if command.rule and command.rule.kind is kind]
    return pytest.mark.parametrize("command", chosen, ids=str)


def _module(command: Command) -> ModuleType:
    assert exists(command.words[0]), "no such file"
    return importlib.import_module(command.words[0].removesuffix(".py").replace("/", "."))


def _app(module: ModuleType) -> typer.Typer:
    """A module's own commands, or its `main` as the only one."""
    if hasattr(module, "app"):
        return module.app  # type: ignore[no-any-return]
    app = typer.Typer()
    app.command()(module.main)
    return app


def _shortened(words: list[str]) -> list[str]:
    """The same call for a few tokens and prompts; an option is given once."""
    if LENGTH not in words:
        words = [*words, LENGTH, SHORT]
    words[words.index(LENGTH) + 1] = SHORT
    if PROMPTS in words:
        words[words.index(PROMPTS) + 1] = _shortest(words[words.index(PROMPTS) + 1])
    return [*words, "--target", _small_model()] if "transformers" in words else words


def _shortest(name: str) -> str:
    """A file of the three shortest prompts of a built-in set."""
    (source,) = find_sources([name], Path())
    lines = sorted(source.read_text(encoding="utf-8").splitlines(), key=len)
    Path(f"{name}.jsonl").write_text("\n".join(lines[:3]), encoding="utf-8")
    return f"{name}.jsonl"


def _small_model() -> str:
    """A tiny GGUF file: the default is one, too."""
    checkpoint = save_checkpoint(Path("small"), llama(max_position_embeddings=4096))
    return str(save_gguf(Path("small.gguf"), checkpoint))


def _parse(command: Command) -> None:
    """Check every option and value; raises what the parser raises."""
    parser, words = typer.main.get_command(_app(_module(command))), list(command.words[1:])
    if words and words[0] in getattr(parser, "commands", {}):
        parser = parser.commands[words.pop(0)]  # type: ignore[attr-defined]
    parser.make_context(command.words[0], words)


def test_every_command_has_a_rule() -> None:
    assert not [str(command) for command in COMMANDS if command.rule is None]
    assert {command.rule.kind for command in COMMANDS if command.rule} == set(Kind)


@pytest.fixture
def after_a_run(place: Path) -> Path:
    """The place with `g.csv`, which the command before on the page takes hours to write."""
    for name in ("results.csv", "results.manifest.json"):
        shutil.copy(place / "docs" / "results" / "quick" / name, place / name.replace("results", "g"))
    return place


@of_kind(Kind.RUN)
def test_a_command_runs(command: Command, after_a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is written, but for what takes the time."""
    _parse(command)
    module, words = _module(command), list(command.words[1:])
    written = after_a_run / "written"
    if folder := WRITERS.get(command.words[0]):
        written.mkdir()
        monkeypatch.setattr(module, folder, written)
    if words[:1] == ["run"]:
        words = _shortened(words)
    if command.words[0] == "scripts/report_ablation.py" and command.words[1] != "g.csv":
        leave_undrawn(monkeypatch)
    monkeypatch.setattr("ablation.run.costing.probe.TIMED_TOKENS", 2)
    monkeypatch.setattr("sampling.measure.times.profiling.BUDGET_S", 1.0)
    ended = CliRunner().invoke(_app(module), words, input=SESSION)
    assert ended.exit_code == 0, (ended.output, ended.exception)
    assert not folder or any(written.iterdir())


@of_kind(Kind.CHECKED)
def test_a_costly_command_is_right(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes as far as loading its models; a session says that loading failed."""
    module = _module(command)
    _refuse_to_load(module, monkeypatch)
    ended = CliRunner().invoke(_app(module), list(command.words[1:]), input=SESSION)
    assert isinstance(ended.exception, ModelsWanted) or ModelsWanted.__name__ in ended.output, ended.output


def _refuse_to_load(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_pair(*options: object) -> None:
        raise ModelsWanted

    monkeypatch.setattr("sampling.loading.pairs.load_pair", load_pair)
    if hasattr(module, "load_pair"):
        monkeypatch.setattr(module, "load_pair", load_pair)


@of_kind(Kind.PARSED)
def test_a_command_parses(command: Command) -> None:
    _parse(command)


@of_kind(Kind.PYTEST)
def test_a_call_of_pytest_parses(command: Command, pytestconfig: pytest.Config) -> None:
    options = pytestconfig._parser.parse(list(command.words[1:]))
    assert all(exists(path) for path in options.file_or_dir)
