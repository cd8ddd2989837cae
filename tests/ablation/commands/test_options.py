"""The options of loading: declared once, and the same wherever they are read."""

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import infer
from ablation.commands.ablate import ablate
from ablation.commands.cli import advise, profile, quality, run, selftest
from ablation.commands.shared.opened import opened
from ablation.plan.file import read_experiment
from ablation.plan.overrides import Overrides
from sampling.loading.options import LOAD, LoadOptions, load_options
from tests.ablation.conftest import write_lines
from tests.refusals import refused
from utils.errors import UnknownName
from utils.option import option, parameters

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Colours:
    """One field of each kind."""

    paint: str | None = option(None, "What to paint with.", "TUB")
    shade: str = option("dark", "How dark.", allowed=("dark", "light"))
    layers: int | None = option(None, "How many layers.", minimum=1)
    tools: tuple[str, ...] = option((), "What to use.", flag="--tool")
    dry: bool = option(False, "Do nothing.")
    gloss: bool | None = option(None, "Make it shine.")


def painted(*arguments: str) -> Any:
    """What a command with these options gets, or how it ended."""
    got: list[Any] = []

    def paint(wall: str, *, colours: Any, loud: bool = False) -> None:
        got.append((wall, colours, loud))

    app = typer.Typer()
    app.command()(opened(colours=Colours)(paint))
    result = CliRunner().invoke(app, list(arguments))
    return got[0] if got else result.output


def test_a_command_gets_what_was_given_and_nothing_else() -> None:
    assert painted("north") == ("north", {}, False)
    given = ("--paint", "red", "--layers", "2", "--tool", "brush", "--tool", "roll", "--dry", "--no-gloss", "--loud")
    colours = {"paint": "red", "layers": 2, "tools": ("brush", "roll"), "dry": True, "gloss": False}
    assert painted("north", *given) == ("north", colours, True)


def test_what_does_not_fit_is_refused() -> None:
    assert "Invalid value" in painted("north", "--layers", "0")
    assert "No such option" in painted("north", "--colours", "x")
    shade, dry, paint = (parameters(Colours)[name] for name in ("shade", "dry", "paint"))
    assert (shade.parse("light"), dry.parse("on"), paint.parse("red")) == ("light", True, "red")
    with refused("shade", "'lihgt'", error=UnknownName) as caught:
        shade.parse("lihgt")
    assert caught.value.near == "light"
    with refused("paint", "' '", "TUB"):
        paint.parse(" ")


def flag(field: Field[Any]) -> str:
    return f"--{field.name.replace('_', '-')}"


def _lines(command: Callable[..., None]) -> dict[str, str]:
    """The help of each option of loading."""
    app = typer.Typer(rich_markup_mode=None)
    app.command()(command)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    return {name: line for name in map(flag, fields(LoadOptions)) for line in lines if line.startswith(f"{name} ")}


def test_every_command_has_the_same_options_with_the_same_help() -> None:
    first, *others = (_lines(command) for command in (run, selftest, advise, profile, ablate, infer.session))
    assert len(first) == len(fields(LoadOptions)) >= 7
    assert all(f.metadata["help"] in first[flag(f)] for f in fields(LoadOptions))
    assert all(other == first for other in others)


def test_help_shows_a_flag_without_a_type() -> None:
    shown = CliRunner().invoke(infer.app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert "--json" in shown and "<bool>" not in shown


def test_a_plan_and_its_command_line_know_each_option(tmp_path: Path) -> None:
    texts = {
        name: "on" if p.default is False else (p.words or ("7" if p.least else "x",))[-1] for name, p in LOAD.items()
    }
    lines = [f'{name} = "{text}"' for name, text in texts.items()]
    plan = str(write_lines(tmp_path / "p.toml", "[pair]", *lines, '[[methods]]\nmethod = "speculative"'))
    experiment = read_experiment(plan, Overrides(prompt="a"))
    assert load_options(experiment.pair) == LoadOptions(**{n: p.parse(texts[n]) for n, p in LOAD.items()})
    assert dict(read_experiment(plan, Overrides(prompt="a", pair={"device": "mps"})).pair)["device"] == "mps"
    page = (ROOT / "docs" / "plans.md").read_text()
    assert all(f"`{name}`" in page for name in LOAD)


@pytest.mark.parametrize("command", ["run", "selftest", "quality", "advise", "profile", "session", "ablate"])
def test_a_wrong_value_is_refused_before_anything_loads(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_pair(*options: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("sampling.loading.pairs.load_pair", load_pair)
    app = typer.Typer()
    jobs = {"run": run, "selftest": selftest, "quality": quality, "profile": profile, "ablate": ablate}
    app.command()({**jobs, "advise": advise}.get(command, infer.session))
    prompts = {"run": ["--prompt", "a"], "ablate": ["--prompt", "a"], "advise": ["--prompts", "code"]}
    prompt = prompts.get(command, [])
    result = CliRunner().invoke(app, [*prompt, "--dtype", "bfloat"], input="Hello\n")
    assert result.exit_code == 2 and "Did you mean 'bfloat16'?" in result.stderr, result.output
