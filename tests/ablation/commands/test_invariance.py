"""The command `invariance`: its table, its objects, its picture, and its exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from ablation.commands.invariance import invariance
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner
from sampling.pair.pair import Pair
from sampling.proof.faults import batch_wide
from tests.tiny import tiny_pair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = tiny_pair()
    assert isinstance(made.target.model, LeanModel)
    broken = made.target.model.with_format(batch_wide(batch_invariant=True))
    pair = Pair(ModelRunner(broken), None, made.tokenizer, frozenset(), made.target_info)
    monkeypatch.setattr("ablation.commands.invariance.load_chosen", lambda models: pair)
    return pair


def call(*arguments: Any) -> Result:
    app = typer.Typer()
    app.command()(invariance)
    return CliRunner().invoke(app, ["--context", "20", *map(str, arguments)])


def test_the_table_names_the_first_operation(pair: Pair) -> None:
    result = call("--rows", "1,2,5")
    assert result.exit_code == 1, result.output
    assert "layers.0.qkv" in result.stdout and " of 5 " in result.stdout
    assert "Numbers of rows without a changed bit: 1." in result.stdout
    assert call("--rows", "1").exit_code == 0


def test_objects_hold_every_operation(pair: Pair) -> None:
    result = call("--rows", "1,5", "--json")
    one, five = map(json.loads, result.stdout.splitlines())
    assert one["first"] is None and one["logit"] == 0.0 and set(one["ulp"].values()) == {0}
    assert (five["rows"], five["context"], five["first"]["operation"]) == (5, 20, "layers.0.qkv")
    assert list(five["ulp"])[-1] == "logits" and five["ulp"]["layers.0.qkv"] == five["first"]["ulp"] > 0


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
@pytest.mark.parametrize("rows", ["1", "1,2,3"])
def test_the_picture_is_drawn(pair: Pair, tmp_path: Path, ending: str, rows: str) -> None:
    path = tmp_path / f"rows.{ending}"
    call("--rows", rows, "--picture", path)
    assert path.stat().st_size > 1000
    again = call("--rows", rows, "--picture", path)
    assert again.exit_code == 2 and "exists" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rows", "1,x"), "1,x"),
        (("--rows", "0"), "from 1 to 1024"),
        (("--rows", "2000"), "from 1 to 1024"),
        (("--rows", ""), "whole numbers"),
        (("--picture", "a.txt"), ".svg"),
        (("--picture", "no/such/a.svg"), "no folder"),
        (("--context", "100000"), "window"),
    ],
)
def test_a_wrong_call_is_refused(pair: Pair, arguments: tuple[str, ...], said: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2 and said in result.stderr
