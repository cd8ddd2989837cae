"""What is refused before processes are connected."""

from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

import infer
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.loading.sharded.together import refuse_together
from scripts import run_ablation
from tests.refusals import refused
from utils.device.torchrun import ProcessRank, seat
from utils.errors import UserError

PLACE = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"target_weights": "int8"}, "--target-weights"),
        ({"graphs": "on"}, "--graphs"),
        ({"compile": "on"}, "--compile"),
        ({"device": "cuda:1"}, "--device"),
        ({"device": "mps"}, "--device"),
        ({"drafter": "self:int8"}, "--drafter"),
        ({"target": "random:llama-1b"}, "--target"),
        ({"drafter_tp": True}, "--drafter-tp"),
    ],
    ids=lambda given: str(given),
)
def test_what_several_processes_cannot_do(given: dict[str, Any], option: str) -> None:
    with refused(option):
        refuse_together(replace(LoadOptions(), **given), 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the interactive session"),
        (["serve"], "serve"),
        (["run", "--prompt", "x", "--batch", "2"], "--batch"),
        (["run", "--prompt", "x", "--methods", "target", "--engine", "transformers"], "--engine"),
        (["run", "--prompt", "x", "--target-weights", "full,int8"], "several --target-weights"),
        (["run", "--prompt", "x", "--from", ":7070"], "--from"),
        (["prefill", "--prompt", "x", "--out", "x.safetensors"], "prefill"),
        (["quality"], "quality"),
        (["advise"], "advise"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else given,
)
def test_what_torchrun_does_not_start(monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(infer.app, words)
    assert result.exit_code == 2
    assert f"{said} given under torchrun" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ray", "local"], "--ray"),
        (["--workers", "2"], "--workers"),
        (["--devices", "cuda:0,cuda:1"], "--devices"),
        (["--share-prefill"], "share_prefill"),
        (["--batch", "2"], "--batch"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else given,
)
def test_what_of_plans_torchrun_does_not_start(monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(run_ablation.app, ["--prompt", "x", *words])
    assert result.exit_code == 2
    assert f"{said} given under torchrun" in result.stderr


def test_a_cut_drafter_needs_torchrun() -> None:
    with refused("--drafter-tp", "torchrun --nproc-per-node"):
        load_pair(LoadOptions(drafter_tp=True))


def test_a_seat_is_read_off_the_environment() -> None:
    assert seat({**PLACE, "RANK": "1"}) == ProcessRank(1, 2, 0)
    assert seat({**PLACE, "WORLD_SIZE": "1"}) is None
    assert seat({"RANK": "1", "WORLD_SIZE": "2"}) is None
    for wrong in ({"RANK": "2"}, {"RANK": "first"}):
        with pytest.raises(UserError):
            seat({**PLACE, **wrong})
