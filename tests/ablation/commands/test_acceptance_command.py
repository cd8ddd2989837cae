"""`infer.py acceptance` on tiny checkpoints: what it prints, what it writes, and what it refuses."""

import csv
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import infer
from ablation.commands import acceptance as command
from tests.ablation.conftest import objects, write_lines
from tests.tiny import llama, save_checkpoint

SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 128}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    target = save_checkpoint(folder / "target", llama(**SIZES))
    drafter = save_checkpoint(folder / "drafter", llama(**SIZES), noise=0.03)
    return ["--target", str(target), "--drafter", str(drafter), "--device", "cpu", "--dtype", "float32"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines: list[Any] = [{"prompt": f"ab {n} ab", "max_new_tokens": 12} for n in range(6)]
    return write_lines(tmp_path / "p.jsonl", *lines, {"turns": ["xy", "and"], "id": "two", "max_new_tokens": 12})


def call(*words: object) -> Any:
    return CliRunner().invoke(infer.app, ["acceptance", *map(str, words)])


def test_figures_as_objects_and_as_a_table(models: list[str], prompts: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "a.csv", tmp_path / "a.png"
    asked = ("--methods", "speculative,suffix", "--depth", 3, "--controls", "--tree", "2,1", "--engine-row", "0.5,0.2")
    result = call(*models, "--prompts", prompts, *asked, "--json", "--csv", out, "--plot", plot)
    assert result.exit_code in (0, 1), result.output
    found = objects(result.stdout)
    with out.open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(found) and list(table[0]) == list(found[0])
    assert plot.stat().st_size > 10_000
    own = [one for one in found if one["drafter"] == "speculative"]
    by_depth = {one["depth"]: one for one in own if one["figure"] == "conditional" and not one["kind"]}
    assert sorted(by_depth) == [1, 2, 3]
    assert 0 <= by_depth[1]["low"] <= by_depth[1]["value"] <= by_depth[1]["high"]
    assert by_depth[1]["places"] == sum(
        one["places"] for one in own if (one["kind"], one["figure"]) == ("turn", "conditional")
    )
    assert {one["group"] for one in own if one["kind"] == "turn"} == {"1", "2"}
    kept = [one["value"] for one in own if one["figure"] == "tokens from anywhere" and not one["kind"]]
    assert kept == sorted(kept) and len(kept) == 3 and kept[0] == pytest.approx(1 + by_depth[1]["value"])
    assert [one["against"] for one in found if one["figure"] == "ratio of tokens"] == ["suffix"]
    assert [one["against"] for one in found if one["figure"] == "conditional in rounds"] == ["", "engine"] * 2
    named = {
        one["drafter"].removeprefix("control: "): one["value"] for one in found if one["drafter"].startswith("control")
    }
    assert named["the target as its own drafter"] == 1.0 and named["next token in sight, causal mask"] < 0.2


def test_tables_for_people_and_a_text_file(models: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("ab ab ab and so on " * 5)
    lines = [{"text": "ab ab and more of it"}, {"prompt": "ab ab", "answer": " ab ab", "id": "x"}]
    more = write_lines(tmp_path / "t.jsonl", *lines)
    result = call(*models, "--text", tmp_path / "t.txt", "--text", more, "--methods", "speculative", "--depth", 2)
    assert result.exit_code == 0, result.output
    assert "Acceptance by depth, 3 texts" in result.stdout and "Tokens a round, by draft length" in result.stdout
    assert "no interval of fewer than 5" in result.stdout


def test_a_control_that_does_not_hold_is_told_by_the_status(
    models: list[str], prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sampling.measure.acceptance.controls.LITTLE", -1.0)
    result = call(*models, "--prompts", prompts, "--limit", 2, "--methods", "speculative", "--depth", 1, "--controls")
    assert result.exit_code == 1 and "NOT as expected" in result.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), ("no text", "--prompts")),
        (("--text", "a", "--prompts", "dialogue"), ("--text and --prompts",)),
        (("--prompts", "dialog"), ("'dialog'", "'dialogue'")),
        (("--prompts", "json"), ("grammar",)),
        (("--prompts", "dialogue", "--tree", "0"), ("--tree", "'0'")),
        (("--prompts", "dialogue", "--depth", "99"), ("--depth",)),
        (("--prompts", "dialogue", "--engine-row", "none.txt"), ("none.txt",)),
        (("--prompts", "dialogue", "--csv", "no/such/f.csv"), ("no folder",)),
        (("--prompts", "dialogue", "--methods", "mtpp"), ("'mtpp'", "'mtp'")),
    ],
)
def test_wrong_calls_are_refused_before_a_model_is_loaded(
    words: tuple[str, ...], says: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "load_chosen", lambda *given: pytest.fail("loaded"))
    result = call(*words)
    assert result.exit_code == 2
    assert all(word in result.output for word in says), result.output
