"""Plans whose configurations share one prefill of a prompt, and the commands that hand states over."""

import csv
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablation.results.manifest import manifest_path, read
from sampling.handover import Handover
from sampling.prefilled.reading import read_apart
from tests.ablation.conftest import call, pair  # noqa: F401
from tests.forked import python
from tests.tiny import gpt2, llama, save_checkpoint
from tests.waiting import PATIENCE_S
from utils.provenance import ROOT

PLAN = """
length = 12
prompts = ["mine.jsonl"]
processors = ["greedy", "nucleus 0.8 0.9"]
share_prefill = {share}
settings.chat = false
[[methods]]
method = "prompt_lookup"
[[methods]]
method = "speculative"
gamma = [1, 3]
"""
PROMPTS = '{"id": "a", "prompt": "The cat sat on the mat."}\n{"id": "b", "turns": ["One two three", "And four?"]}\n'
TIMES = ("_s", "_ms", "_mhz", "_share", "tps", "started", "other_cores", "speedup", "c", "mb", "break_even", "per_s")
TIMES += ("joules_per_token", "watts")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "mine.jsonl").write_text(PROMPTS)
    for name, share in (("own", "false"), ("shared", "true")):
        (tmp_path / f"{name}.toml").write_text(PLAN.format(share=share))
    return tmp_path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def lasting(row: Mapping[str, str]) -> dict[str, str]:
    """What does not depend on the time that anything took."""
    return {
        name: value
        for name, value in row.items()
        if name != "prefill_shared" and name != "c" and not any(part in name for part in TIMES if part != "c")
    }


def test_a_plan_reads_each_prompt_once_and_its_rows_are_the_same(
    call: Any,  # noqa: F811
    plan: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as without_a_report:
        without_a_report.setattr("ablation.run.conduct.conclude", lambda *files: None)
        assert call(plan / "own.toml", "--out", plan / "own.csv").exit_code == 0
    read_by: list[tuple[int, ...]] = []

    def counted(target: Any, prompt: Sequence[int], layers: Sequence[int], shared: bool = False) -> Handover:
        read_by.append(tuple(prompt))
        return replace(read_apart(target, prompt, layers, shared), prefill_s=100.0 * len(read_by))

    monkeypatch.setattr("sampling.prefilled.shared.read_apart", counted)
    done = call(plan / "shared.toml", "--out", plan / "shared.csv")
    assert done.exit_code == 0, done.output
    own, shared = rows(plan / "own.csv"), rows(plan / "shared.csv")
    assert len(own) == len(shared) == 30
    assert list(map(lasting, own)) == list(map(lasting, shared))
    assert {row["prefill_shared"] for row in own} == {"false"} and {row["prefill_shared"] for row in shared} == {"true"}
    for asked in {(row["id"], row["processor"]) for row in shared}:
        first = [row for row in shared if (row["id"], row["processor"]) == asked and row["turn"] == "1"]
        times = {round(float(row["prefill_s"]) / 100) for row in first}
        assert len(first) == 5 and len(times) == 1 and times != {0}, "the seconds of the one reading, in all five rows"
        assert all(float(row["wall_s"]) > float(row["prefill_s"]) for row in first)
    assert all(row["kv_bytes"] == row["kv_transfer_ms"] == "" for row in shared)
    assert read(manifest_path(plan / "shared.csv"))["fixed"]["grid"]["share_prefill"] is True
    assert "shared one prefill of a common text" in done.output
    other = call(plan / "own.toml", "--out", plan / "shared.csv", "--resume")
    assert other.exit_code == 2 and "share_prefill: true then, false now" in other.stderr


def test_sharing_is_an_option_too_and_not_for_batches(
    call: Any,  # noqa: F811
    plan: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ablation.run.conduct.conclude", lambda *files: None)
    done = call(plan / "own.toml", "--share-prefill", "--limit", 1, "--out", plan / "o.csv")
    assert done.exit_code == 0 and {row["prefill_shared"] for row in rows(plan / "o.csv")} == {"true"}
    refused = call(plan / "shared.toml", "--batch", "2", "--out", plan / "b.csv")
    assert refused.exit_code == 2 and "share_prefill and batch given; expected one of them" in refused.stderr
    (plan / "wrong.toml").write_text("share_prefill = 3")
    assert "share_prefill" in call(plan / "wrong.toml", "--out", plan / "w.csv").stderr
    assert not (plan / "b.csv").exists() and not (plan / "w.csv").exists()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("models")
    target = save_checkpoint(folder / "t", llama(max_position_embeddings=1024))
    drafter = save_checkpoint(folder / "d", llama(max_position_embeddings=1024), noise=0.02)
    return "--target", str(target), "--drafter", str(drafter), "--dtype", "float32"


def infer(*words: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [python(), str(ROOT / "infer.py"), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S)


def objects(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


SAID = ("id", "method", "output_ids", "rounds", "drafted", "accepted", "prompt_tokens", "finish_reason")


def said(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: one[name] for name in SAID} for one in records]


def test_prompts_are_read_by_one_command_and_answered_by_another(models: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "x", "prompt": "The cat sat"}\n{"id": 7, "prompt": "on the mat"}\n')
    asked = ("--methods", "target,speculative,prompt_lookup", "--length", 16, "--json", *models)
    expected = objects(infer("run", "--prompts", "p.jsonl", *asked, cwd=tmp_path))
    told = objects(infer("prefill", "--prompts", "p.jsonl", "--out", "states", "--json", *models, cwd=tmp_path))
    assert [one["id"] for one in told] == ["x", 7] and all(Path(tmp_path, one["file"]).is_file() for one in told)
    found = objects(infer("run", "--from", "states", *asked, cwd=tmp_path))
    assert said(found) == said(expected)
    kv_bytes = {one["id"]: one["kv_bytes"] for one in told}
    for one in found:
        assert one["kv_bytes"] == kv_bytes[one["id"]] and one["kv_transfer_ms"] > 0 and one["prefill_shared"] is False
        first = one["ttft_s"] - one["prefill_s"] - one["kv_transfer_ms"] / 1e3
        assert 0 < first < one["decode_s"] + 1e-9
        whole = one["prefill_s"] + one["kv_transfer_ms"] / 1e3 + one["decode_s"]
        assert one["wall_s"] == pytest.approx(whole)
    taken = infer("prefill", "--prompts", "p.jsonl", "--out", "states", *models, cwd=tmp_path)
    assert taken.returncode == 2 and "--overwrite" in taken.stderr
    other = infer("run", "--from", "states", "--prompt", "The cat sits", *asked, cwd=tmp_path)
    assert other.returncode == 2 and "they part at token" in other.stderr and not other.stdout


def test_a_process_reads_prompts_for_another(models: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "x", "turns": ["The cat sat", "on the mat"]}\n')
    asked = ("--prompts", "p.jsonl", "--methods", "target,speculative", "--length", 16, "--json", *models)
    expected = objects(infer("run", *asked, cwd=tmp_path))
    command = [python(), str(ROOT / "infer.py"), "prefill", "--listen", "127.0.0.1:0", *models]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as reader:
        try:
            assert reader.stderr
            line = next(line for line in reader.stderr if "--from" in line)
            address = line.split("--from ")[1].split("`")[0]
            found = objects(infer("run", "--from", address, *asked, cwd=tmp_path))
            again = objects(infer("run", "--from", address, *asked, "--seed", 3, cwd=tmp_path))
        finally:
            reader.send_signal(signal.SIGINT)
            rest = reader.stderr.read() if reader.stderr else ""
            assert reader.wait(PATIENCE_S) == 0, rest
    assert said(found) == said(expected) and len(again) == len(found) == 4
    assert all(one["kv_bytes"] > 0 and one["kv_transfer_ms"] > 0 for one in found)
    assert rest.count("MB sent") == 8


def test_a_reader_that_dies_fails_rows_and_not_the_run(models: tuple[str, ...], tmp_path: Path) -> None:
    command = [python(), str(ROOT / "infer.py"), "prefill", "--listen", "127.0.0.1:0", *models]
    lines = "".join(f'{{"id": {number}, "prompt": "prompt number {number}"}}\n' for number in range(400))
    (tmp_path / "p.jsonl").write_text(lines)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stderr
        line = next(line for line in reader.stderr if "--from" in line)
        address = line.split("--from ")[1].split("`")[0]
        run = [python(), str(ROOT / "infer.py"), "run", "--prompts", "p.jsonl", "--from", address]
        run += ["--methods", "target", "--length", "16", "--json", *models]
        with subprocess.Popen(run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as decoder:
            assert decoder.stdout
            first = json.loads(decoder.stdout.readline())
            os.kill(reader.pid, signal.SIGKILL)
            records = [first, *(json.loads(one) for one in decoder.stdout)]
            assert decoder.wait(PATIENCE_S) == 1
    failed = [one for one in records if one["error"]]
    assert len(records) == 400 and first["error"] is None and failed
    assert all("expected `infer.py prefill --listen` there" in one["error"] for one in failed)


def test_states_of_one_folder(models: tuple[str, ...], tmp_path: Path) -> None:
    """Each prompt under a name of its own; a folder that holds other states is not added to."""
    (tmp_path / "d").mkdir()
    for name in ("one", "two"):
        objects(infer("prefill", "--prompt", name, "--out", f"d/{name}.safetensors", "--json", *models, cwd=tmp_path))
    found = objects(infer("run", "--from", "d", "--methods", "target", "--length", 4, "--json", *models, cwd=tmp_path))
    assert [one["id"] for one in found] == ["one", "two"] and all(one["kv_bytes"] for one in found)
    added = infer("prefill", "--prompt", "three", "--out", "d", "--overwrite", *models, cwd=tmp_path)
    assert added.returncode == 2 and "holds 'one.safetensors' of other prompts" in added.stderr
    several = ("--methods", "target", "--target-weights", "full,int8", *models)
    refused = infer("run", "--from", "d", *several, cwd=tmp_path)
    assert refused.returncode == 2 and "--from and several --target-weights given" in refused.stderr


def test_wrong_calls(models: tuple[str, ...], tmp_path: Path) -> None:
    other = save_checkpoint(tmp_path / "g", gpt2())
    for words, says in (
        (("prefill", "--prompt", "a"), "--out and --listen: expected one of them"),
        (("prefill", "--listen", ":1", "--prompt", "a"), "--listen and --prompt given"),
        (("prefill", "--listen", "here"), "expected HOST:PORT"),
        (("prefill", "--prompts", "code", "--out", "x.safetensors"), "expected a folder"),
        (("prefill", "--prompt", "a", "--out", "x.txt"), "a name that ends in .safetensors, or a folder"),
        (("run", "--prompt", "a", "--from", "http://127.0.0.1:1"), "no such file or folder; expected what"),
        (("prefill", "--prompt", "a", "--out", "no/x.safetensors"), "there is no folder"),
        (("run", "--prompt", "a", "--from", ":1", "--batch", "2"), "--from and --batch given"),
        (("run", "--prompt", "a", "--from", ":1", "--set", "cache=off"), "--from and cache off given"),
        (("run", "--prompt", "a", "--from", ":1", "--engine", "transformers"), "--from and --engine given"),
        (("run", "--from", str(other)), "is no prefilled state"),
    ):
        done = infer(*words, cwd=tmp_path)
        assert done.returncode == 2 and says in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr
