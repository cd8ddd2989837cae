"""The command of the batch ablation, on a tiny pair."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from ablation.commands.ablate import ablate
from ablation.plan.file import Experiment
from ablation.results.merge import merge
from ablation.run import shared_choices
from sampling.forward.kernels import autotune_cache, int8
from sampling.forward.kernels.autotuning import TrialVerdict
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import Invoke
from utils.files import CACHE_VARIABLE

SMALL = ("--prompt", "Hello", "--length", 5)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_flags_make_a_grid_with_its_report(call: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    result = call(*SMALL, "--methods", "speculative", "--gamma", "1,2", "--seeds", 2, "--out", out, "--trace")
    assert result.exit_code == 0, result.output
    assert len(rows(out)) == 4 * 2
    assert {row["configuration"] for row in rows(out)} == {
        "target",
        "speculative gamma=1",
        "speculative gamma=2",
        "control",
    }
    assert {row["seed"] for row in rows(out)} == {"42", "43"}
    manifest = json.loads((tmp_path / "r.manifest.json").read_text())
    assert manifest["runs"][0]["rows"] == 8 and manifest["fixed"]["machine"]["threads"] >= 1
    traced = [json.loads(line) for line in (tmp_path / "r.trace.jsonl").read_text().splitlines()]
    assert len(traced) == sum(int(row["rounds"]) for row in rows(out))
    assert (tmp_path / "r.report" / "index.html").is_file() and "SD (speculative) gamma=2" in result.stdout


def test_an_existing_file_needs_a_word(call: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    assert call(*SMALL, "--out", out).exit_code == 0
    before = out.read_bytes()
    refused = call(*SMALL, "--out", out)
    assert refused.exit_code == 2 and "give --resume to continue it" in refused.stderr and out.read_bytes() == before
    resumed = call(*SMALL, "--out", out, "--resume")
    assert resumed.exit_code == 0 and out.read_bytes() == before
    other = call("--prompt", "Other", "--length", 5, "--out", out, "--resume")
    assert other.exit_code == 2 and "grid.prompts.prompt" in other.stderr and out.read_bytes() == before
    assert call(*SMALL, "--out", out, "--overwrite").exit_code == 0


@pytest.fixture
def nothing_chosen(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has tried no kernel, and an empty cache folder."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(autotune_cache, "_made", {})
    monkeypatch.setattr(autotune_cache, "_given", {})


def test_going_on_computes_as_the_rows_that_are_there(
    call: Invoke, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_chosen: None
) -> None:
    found, out = "packed", tmp_path / "r.csv"

    def engine(experiment: Experiment) -> PairEngine:
        asked = experiment.pair.get("kernel", "auto")
        alike = experiment.pair.get("batch_invariant", "auto")
        info = replace(
            pair.target_info,
            kernel=found if asked == "auto" else asked,
            batch_invariant=found == "packed" if alike == "auto" else alike == "on",
        )
        return PairEngine(replace(pair, target_info=info))

    monkeypatch.setattr("ablation.commands.ablate._engine", engine)
    assert call(*SMALL, "--out", out).exit_code == 0
    assert {(row["kernel"], row["batch_invariant"]) for row in rows(out)} == {("packed", "true")}
    assert json.loads((tmp_path / "r.manifest.json").read_text())["fixed"]["target"]["kernel"] == "packed"
    found = "plain"
    for options in ((), ("--kernel", "auto"), ("--kernel", "packed")):
        resumed = call(*SMALL, "--out", out, "--resume", *options)
        assert resumed.exit_code == 0, resumed.output
    refused = call(*SMALL, "--out", out, "--resume", "--kernel", "plain")
    assert refused.exit_code == 2
    assert "made with kernel packed, and --kernel plain is given; leave --kernel out" in refused.stderr
    refused = call(*SMALL, "--out", out, "--resume", "--batch-invariant", "off")
    assert refused.exit_code == 2 and "batch_invariant on, and --batch-invariant off is given" in refused.stderr
    assert call(*SMALL, "--out", out, "--overwrite", "--kernel", "plain").exit_code == 0
    assert {row["kernel"] for row in rows(out)} == {"plain"}


@pytest.fixture
def trials(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What a start finds fastest: another dtype than the one before, where it is not told."""
    found = cycle(("float32", "bfloat16"))

    def engine(experiment: Experiment) -> PairEngine:
        asked = experiment.pair.get("dtype", "auto")
        dtype = next(found) if asked == "auto" else asked
        assert pair.drafter_info is not None
        infos = (replace(info, dtype=dtype) for info in (pair.target_info, pair.drafter_info))
        return PairEngine(replace(pair, **dict(zip(("target_info", "drafter_info"), infos, strict=True))))

    monkeypatch.setattr("ablation.commands.ablate._engine", engine)
    return found


@pytest.mark.usefixtures("trials")
def test_going_on_takes_the_dtype_of_the_rows_that_are_there(call: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    assert call(*SMALL, "--out", out).exit_code == 0
    for options in ((), ("--dtype", "auto"), ("--kernel", "auto"), ("--dtype", "float32")):
        resumed = call(*SMALL, "--out", out, "--resume", *options)
        assert resumed.exit_code == 0, resumed.output
    refused = call(*SMALL, "--out", out, "--resume", "--dtype", "bfloat16")
    assert refused.exit_code == 2
    assert "made with dtype float32, and --dtype bfloat16 is given; leave --dtype out" in refused.stderr


@pytest.mark.usefixtures("trials")
def test_workers_take_the_dtype_of_the_first_one(call: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared_choices.VARIABLE, str(tmp_path / "chosen.json"))
    shards = [tmp_path / f"r.{number}-of-2.csv" for number in (1, 2)]
    for number in (1, 2):
        played = call(*SMALL, "--seeds", 2, "--out", tmp_path / "r.csv", "--shard", f"{number}/2")
        assert played.exit_code == 0, played.output
    assert merge(shards, tmp_path / "r.csv").rows == 10


@pytest.mark.skipif(not int8.runs(), reason="this CPU or torch has no int8 products")
def test_going_on_rounds_drafters_as_the_rows_that_are_there(
    call: Invoke, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_chosen: None
) -> None:
    assert pair.drafter_info is not None
    trained = replace(pair, drafter_info=replace(pair.drafter_info, trained=True))
    monkeypatch.setattr("ablation.commands.ablate._engine", lambda options: PairEngine(trained))
    arguments = (*SMALL, "--methods", "speculative", "--out", tmp_path / "r.csv")
    for rough in (True, False):
        monkeypatch.setattr(int8, "_rough_or_full", lambda *_, found=rough: TrialVerdict(found, settled=False))
        autotune_cache.forget()
        result = call(*arguments, *(() if rough else ("--resume",)))
        assert result.exit_code == 0, result.output
    runs = json.loads((tmp_path / "r.manifest.json").read_text())["runs"]
    ((question, said),) = ((name, said) for name, said in runs[0]["choices"].items() if "int8" in name)
    assert question.startswith("int8 drafts, float32") and said.startswith("yes, undecided")
    assert not int8.pays(torch.float32), "only that run was told"


def test_a_dry_run_writes_nothing(call: Invoke, tmp_path: Path) -> None:
    result = call(*SMALL, "--dry-run", "--out", tmp_path / "r.csv")
    assert result.exit_code == 0 and "5 generations" in result.stdout and "about" in result.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("quik",), "Did you mean 'quick'?"),
        (("--methods", "specultive"), "Did you mean 'speculative'?"),
        (("--gamma", "2,x"), "an integer from 0 to 1024"),
        (("--prompts", "dialoge"), "dialogue"),
        (("--processor", "nucleus"), "nucleus needs temperature"),
        (("--set", "gamma"), "gamma=VALUE"),
        (("--set", "gama=3"), "Did you mean 'gamma'?"),
        (("--gamma", "2", "--set", "gamma=3"), "given twice"),
        (("--prompt", " "), "not empty"),
        (("--out", "no/such/folder/r.csv"), "there is no folder"),
    ],
)
def test_a_wrong_call_ends_with_2_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    def load(experiment: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("ablation.commands.ablate._engine", load)
    app = typer.Typer()
    app.command()(ablate)
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2 and said in result.stderr, result.output
