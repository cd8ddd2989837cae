"""`infer.py profile` on a tiny checkpoint: what it prints, what it keeps, and what Ctrl-C leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import infer
from sampling.measure.times import profiling
from sampling.pair.profile import LatencyProfile
from sampling.pair.profile_store import store_path
from tests.tiny import llama, save_checkpoint
from utils.device import machine
from utils.files import CACHE_VARIABLE

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("--json")`, with a tiny target and drafter, an empty cache folder and a machine that is free."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)
    target, drafter = (
        save_checkpoint(tmp_path / name, llama(max_position_embeddings=96), noise=noise)
        for name, noise in (("target", 0.0), ("drafter", 0.03))
    )
    models = ("--target", target, "--drafter", drafter, "--device", "cpu", "--seconds", "1")
    return lambda *words: CliRunner().invoke(infer.app, ["profile", *map(str, (*models, *words))])


def test_it_is_measured_once_and_kept(call: Call) -> None:
    first, again = call("--json"), call("--json")
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert found == json.loads(again.stdout) and found["kept"] == str(store_path())
    assert found["target"] and found["drafter"] and found["target_weights"] == "full"
    profile = LatencyProfile.from_dict({name: found[name] for name in LatencyProfile.__dataclass_fields__})
    assert list(profile.forward) == [64] and "model" in profile.drafters
    anew = json.loads(call("--json", "--refresh").stdout)
    assert anew["forward"] != found["forward"]
    assert json.loads(call("--json").stdout) == anew


def test_a_table_says_what_it_means_and_where_it_is(call: Call) -> None:
    result = call()
    assert result.exit_code == 0, result.output
    for said in ("behind 64 tokens, ms", "v(n)", "first draft, ms", "prompt_lookup", "Plain decoding", "Kept in"):
        assert said in result.stdout, said
    rows = [line for line in result.stdout.splitlines() if line.startswith("│ 1 ")]
    assert len(rows) == 1 and rows[0].rstrip(" │").endswith("1.00")


def test_beside_busy_processes_it_is_shown_and_not_kept(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10_000, 100))
    monkeypatch.setattr(machine, "_busy_s", lambda: float(next(ticks)))
    result = call("--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["kept"] is None
    assert not store_path().exists()


def test_ctrl_c_keeps_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(profiling._Live, "times", interrupted)
    result = call()
    assert result.exit_code == 130 and "stopped" in result.stderr
    assert not store_path().exists()
