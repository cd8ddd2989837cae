"""scripts/gpu_check.py: every stage rehearsed on a CPU, and what becomes of one that fails or has no time left."""

import ast
import json
import random
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
import typer
from typer.testing import CliRunner

from ablation.gpu_check import right, stages
from ablation.gpu_check.calls import CallFailed, call
from ablation.gpu_check.fast import predictions
from ablation.gpu_check.fast.predictions import EAGER, GRAPHS, LARGE, PREDICTIONS, SMALL, Prediction
from ablation.gpu_check.fast.rivals import _generate
from ablation.gpu_check.fast.stage import PROMPT
from ablation.gpu_check.models import in_transformers, pair_of
from ablation.gpu_check.packed import MOST_BYTES, pack
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.gpu_check.rounds import settings_of
from ablation.gpu_check.stages import run_stage
from sampling.distill.training import CHECKPOINT
from sampling.loading.checkpoint import Placement
from sampling.loading.random_weights import random_model
from sampling.measure.metrics import RunMetrics
from sampling.methods.tables import AR, HEADS
from sampling.pair.pair_engine import PairEngine
from sampling.proof.selftest import Check, MethodReport
from scripts import gpu_check
from tests.docs.pages import ROOT
from tests.forked import python
from tests.refusals import refused
from tests.tiny import llama, tiny_pair
from utils.files import CACHE_VARIABLE

CPU = torch.device("cpu")
app = typer.Typer()
app.command()(gpu_check.main)


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that a stage calls begin with what they import."""
    monkeypatch.setattr(sys, "executable", python())


def written(folder: Path, stage: str) -> dict[str, Any]:
    """The file of a stage."""
    said: dict[str, Any] = json.loads((folder / f"{stage}.json").read_text(encoding="utf-8"))
    return said


def rehearsed(stage: str, folder: Path, *packed: str) -> dict[str, Any]:
    """What the file of a stage says behind a dry run, in which nothing failed. packed: what lies beside the file."""
    assert run_stage(stage, folder, "cpu", tiny=True)
    assert {path.name for path in folder.iterdir()} == {f"{stage}.json", *packed}
    assert all(path.is_file() and path.stat().st_size < MOST_BYTES for path in folder.iterdir())
    said = written(folder, stage)
    assert said["finished"] and said["failed"] == {}
    assert said["command"].startswith(f"scripts/gpu_check.py {stage} --out")
    assert torch.__version__.startswith(said["versions"]["torch"]) and said["card"] is None
    return said


def test_right(tmp_path: Path) -> None:
    said = rehearsed("right", tmp_path / "out")
    found = said["found"]
    alike = {name: said for name, said in found.items() if name.startswith("greedy, batch-invariant: ")}
    if torch.cpu._is_amx_tile_supported():
        assert not alike and "AMX" in said["left_out"]["models, batch-invariant"]
    else:
        verdicts = {one["verdict"] for name, one in alike.items() if "references" not in name}
        assert len(alike) > 5 and verdicts == {"PASS"}
    for way in ("on", "off"):
        greedy = {name for name in found if name.startswith(f"greedy, graphs {way}: ")}
        assert {f"greedy, graphs {way}: {name}" for name in (*HEADS, "speculative", "ngram", "extended")} <= greedy
        assert found[f"waits, graphs {way}: target"] is None and found[f"launches, graphs {way}: speculative"] is None
    assert found["AR, graphs on against off"]["verdict"] in ("exact", "tie")
    assert found["distribution: speculative"]["distribution"]["verdict"] in ("PASS", "WEAK")


def test_fast(tmp_path: Path) -> None:
    said = rehearsed("fast", tmp_path / "out")
    found = said["found"]
    for way in (GRAPHS, EAGER):
        own = found[f"tiny: AR, {way}"]
        assert own["ms"] > 0 and own["tokens_a_round"] == 1.0 and own["drafts_a_round"] == 0
        assert set(found[f"tiny: v(n), {way}"]["v"]) == {"1", "2", "5"}
    assert found["tiny: floor"]["share"] > 0 and found["matmul"]["operations_per_s"] > 0
    drafting = [one for name, one in found.items() if ", acceptance 0.8" in name and "behind" not in name]
    assert len(drafting) == 5 and all(one["c"] > 0 and one["speedup"] > 0 for one in drafting)
    assert any(one["tokens_a_round"] > 1.5 for one in drafting)
    for context in (64, 256):
        far = {
            name.removesuffix(end): one
            for name, one in found.items()
            if name.endswith(end := f", behind {context} tokens")
        }
        assert len(far) == 5 and set(far["tiny: v(n), graphs"]["v"]) == {"1", "5"}
        assert far["tiny: floor"]["share"] > 0 and far["tiny: AR, eager"]["ms"] > 0
        assert any(one.get("speedup", 0) > 0 for one in far.values())
    near, far = (found[f"tiny: floor{end}"]["bytes"] for end in ("", ", behind 256 tokens"))
    assert far - near == pytest.approx(2 * 3 * 2 * 8 * 4 * (256 + 5.5 - 48 - 9.5)), (
        "rows of the cache, middle of answers"
    )
    turns = found["tiny: against generate"]
    assert turns["eager_ratio"] > 0 and turns["eager_agreed"] == 8, "equal weights say the same"
    assert "dry run" in said["left_out"]["tiny: generate compiles"]
    assert len(said["predictions"]) == len(PREDICTIONS) and {goal["reached"] for goal in said["goals"]} == {None}


def test_real(tmp_path: Path) -> None:
    found = rehearsed("real", tmp_path / "out", "real.zip")["found"]
    engines = found["plan: engines"]
    assert engines["rows"] and not engines["failed"] and set(engines["verdicts"]) == {"exact"}
    assert {row["processor"] for row in engines["summary"]} == {"greedy, workbench", "greedy, transformers"}
    plan = found["plan: dry_run"]
    assert plan["rows"] == 4 and plan["failed"] == 0 and set(plan["verdicts"]) <= {"exact", "tie"}
    assert {row["configuration"] for row in plan["summary"]} >= {"target", "speculative", "mtp"}


def test_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    found = rehearsed("train", tmp_path / "out", "mtp.zip", "eagle.zip")["found"]
    assert found["data"]["tokens_per_s"] > 0 and found["data"]["new_tokens"] >= found["data"]["tokens"]
    for method in ("mtp", "eagle"):
        assert found[f"train: {method}"]["finished"] and "held-out tokens a round" in found[f"train: {method}"]
        with ZipFile(tmp_path / "out" / f"{method}.zip") as archive:
            names = set(archive.namelist())
        assert names >= {f"{method}/training.svg", f"{method}/model.safetensors", f"{method}/README.md"}
        assert f"{method}/{CHECKPOINT}" not in names


class Clock:
    """Seconds that a test passes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_fails_and_what_no_time_is_left_for_is_said_and_the_rest_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    record = StageRecord("right", tmp_path, CPU, clock=clock, seconds=100.0)

    def broken() -> None:
        raise RuntimeError("no kernel\nand more")

    def lacking() -> None:
        raise LeftOut("no compiler")

    assert record.measure("broken", broken) is None and record.measure("lacking", lacking) is None
    assert written(tmp_path, "right")["failed"] == {"broken": "RuntimeError: no kernel"}
    assert "in broken" in written(tmp_path, "right")["traces"]["broken"]
    assert written(tmp_path, "right")["left_out"] == {"lacking": "no compiler"}
    assert record.measure("one", lambda: {"ms": float("nan")}) is not None
    assert written(tmp_path, "right")["found"] == {"one": {"ms": None}} and not written(tmp_path, "right")["finished"]
    clock.now = 60.0
    assert record.measure("long", lambda: 1, needs_s=50.0) is None and record.measure("short", lambda: 2) == 2
    clock.now = 101.0
    assert record.measure("late", lambda: 3) is None
    late = {"long": "40 s were left", "late": "0 s were left"}
    assert written(tmp_path, "right")["left_out"] == {"lacking": "no compiler", **late}
    assert not record.finish() and written(tmp_path, "right")["finished"]


def test_a_stage_without_its_device_or_that_breaks_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        assert not run_stage("fast", tmp_path, "cuda", tiny=True)
        assert "finds no CUDA device" in written(tmp_path, "fast")["failed"]["device"]

    def no_such_package(name: str) -> None:
        raise ModuleNotFoundError("No module named 'prompt_toolkit'")

    monkeypatch.setattr(stages, "import_module", no_such_package)
    assert not run_stage("real", tmp_path, "cpu", tiny=True)
    assert "prompt_toolkit" in written(tmp_path, "real")["failed"]["stage"]


def test_a_method_with_another_output_fails_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        """Finds one method, which is wrong."""

        methods = ("speculative",)

        def __init__(self, *given: object) -> None:
            pass

        def report(self, name: str) -> MethodReport:
            return MethodReport(name, (Check("greedy", "FAIL", {"BUG": 3}),))

    monkeypatch.setattr(right, "Selftest", Failing)
    record = StageRecord("right", tmp_path, CPU, tiny=True)
    right._check(record, "greedy, graphs on", tiny_pair(), 0)
    assert "'BUG': 3" in record.failed["greedy, graphs on: speculative"] and not record.finish()
    assert right._cell(record, "greedy, graphs on: speculative") == "FAIL"


@pytest.mark.parametrize(
    ("named", "failing", "ran", "status"),
    [
        ((), (), ("probe", "right", "fast", "real", "train"), 0),
        ((), ("probe",), ("probe", "right", "fast", "real", "train"), 1),
        ((), ("right",), ("probe", "right", "fast", "real", "train"), 1),
        ((), ("fast",), ("probe", "right", "fast", "real", "train"), 1),
        (("right", "fast"), ("right",), ("right", "fast"), 1),
    ],
)
def test_a_stage_that_fails_keeps_no_other_from_running(
    named: tuple[str, ...], failing: tuple[str, ...], ran: tuple[str, ...], status: int,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: list[str] = []

    def run(name: str, *given: object) -> bool:
        seen.append(name)
        return name not in failing

    monkeypatch.setattr(gpu_check, "run", run)
    assert CliRunner().invoke(app, [*named, "--out", str(tmp_path)]).exit_code == status
    assert tuple(seen) == ran


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the stages would run")
def test_real_stages_go_on_behind_one_that_fails(tmp_path: Path) -> None:
    """Here for want of a card, as a stage of its own process."""
    said = CliRunner().invoke(app, ["probe", "right", "fast", "--out", str(tmp_path / "out")])
    assert said.exit_code == 1
    for stage in ("probe", "right", "fast"):
        found = written(tmp_path / "out", stage)
        assert found["finished"] and "finds no CUDA device" in found["failed"]["device"]


def test_what_is_too_large_to_be_fetched_stays_where_it_is(tmp_path: Path) -> None:
    record = StageRecord("train", tmp_path / "out", CPU)
    (record.work / "small").write_bytes(b"x")
    (record.work / "large").write_bytes(random.Random(0).randbytes(MOST_BYTES))
    for name in ("small", "large"):
        pack(record, name, [record.work / name, record.work / "nothing"])
    assert {path.name for path in record.folder.iterdir()} == {"train.json", "small.zip"}
    assert str(record.work) in record.left_out["large.zip"]


def test_an_unknown_stage_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["quick", "--out", str(tmp_path / "no")])
    assert done.exit_code == 2 and "unknown stage 'quick'" in done.output and not (tmp_path / "no").exists()


def test_a_command_is_stopped_behind_its_time_and_its_status_told(tmp_path: Path) -> None:
    waiting = "import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    raise SystemExit(130)"
    call(["-c", waiting], tmp_path / "log.txt", 2.0, allowed=(130,))
    with refused(3, "the last line", error=CallFailed) as failed:
        call(["-c", "print('first')\nprint('the last line')\nraise SystemExit(3)"], tmp_path / "log.txt", 60.0)
    assert failed.value.__notes__ == ["first\nthe last line\n"]


def test_the_command_asks_for_nothing_of_the_project_before_its_folder_is_known() -> None:
    """So that `python scripts/gpu_check.py` finds it where it is not installed."""
    tree = ast.parse((ROOT / "scripts" / "gpu_check.py").read_text(encoding="utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {*sys.stdlib_module_names, "typer"}


def test_predictions_stand_beside_what_was_measured() -> None:
    found = {predictions.plain(SMALL, GRAPHS): {"ms": 2.48}, predictions.floor(LARGE): {"share": 0.8}}
    graphs = next(one for one in PREDICTIONS if one.what == "SmolLM2-135M AR, graphs").beside(found)
    assert (graphs["value"], graphs["measured"], graphs["ratio"]) == (1.24, 2.48, 2.0)
    assert Prediction("fused", 1.0, "ms").beside(found)["ratio"] is None
    slower = {**found, predictions.COPY: {"bytes_per_s": predictions.READS_BYTES_PER_S / 2}}
    scaled = next(one for one in PREDICTIONS if one.what == "SmolLM2-135M AR, graphs").beside(slower)
    assert scaled["here"] == pytest.approx(1.24 + 0.063) and scaled["value"] == 1.24
    reached = {goal.what: goal.beside(found)["reached"] for goal in predictions.GOALS}
    assert reached["8B: share of the roofline, at least"] and reached["135M: ms a token, at most"] is False
    assert reached["8B: times compiled generate, at least"] is None


def test_the_page_says_what_was_predicted_and_found() -> None:
    """After a change: ablation.gpu_check.fast.predictions.markdown(found)"""
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    found = written(ROOT / "docs" / "gpu" / "h200", "fast")["found"]
    assert predictions.markdown(found) in page
    for goal in ("75 %", "45 %", "1.3 ms"):
        assert goal in page


def test_every_predicted_number_has_a_measurement_of_that_name() -> None:
    """The names are made in one place; the numbers are those of the records that stand there."""
    numbers = {one.number for one in PREDICTIONS if one.measurement}
    assert numbers == {"ms", "speedup", "c", "v5"}


def test_random_weights_are_the_same_in_transformers() -> None:
    config = llama(max_position_embeddings=64)
    place = Placement(CPU, torch.float32)
    ours, theirs = random_model("tiny", config, place), in_transformers(config, place)
    account = RunMetrics()
    for event in PairEngine(pair_of("tiny", ours, graphs=False)).stream(AR, settings_of(8), PROMPT):
        account.add(event)
    assert account.output_ids == _generate(theirs, 8, PROMPT)
