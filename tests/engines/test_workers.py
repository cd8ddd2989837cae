"""Kinds vllm and openvino: a process of the engine's own Python, here with packages that stand in for it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engines.fleet import ready
from engines.spec import EngineSpec
from sampling.engine import Text
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.engines.fake_packages import write_packages
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.events import Acceptance, WholeAnswer

ARGUMENTS = {"vllm": "--dtype float32", "openvino": "INFERENCE_NUM_THREADS=2 INFERENCE_PRECISION_HINT=f32"}
VERSIONS = {
    "vllm": "fake",
    "openvino": "fake (INFERENCE_NUM_THREADS 2, INFERENCE_PRECISION_HINT f32, KV_CACHE_PRECISION u8)",
}
KINDS = pytest.mark.parametrize("kind", ARGUMENTS)
VALUES: Mapping[str, Any] = {**Settings(), "length": 6, "num_speculative_tokens": 10}


@pytest.fixture
def spec(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineSpec:
    monkeypatch.setenv("PYTHONPATH", str(write_packages(tmp_path)))
    model, drafter = ("m.gguf", "d.gguf") if kind == "openvino" else ("m", "d")
    return EngineSpec(
        "e", kind, python=sys.executable, arguments=ARGUMENTS[kind], model=model, drafter=drafter, weights="Q4_1"
    )


@KINDS
def test_answers_with_rounds_and_errors_that_stay_with_their_request(kind: str, spec: EngineSpec) -> None:
    with ready([spec], PairEngine(tiny_pair())) as engines:
        engine = engines["e"]
        (plain,) = engine.stream("target", VALUES, [1, 2, 3])
        assert isinstance(plain, WholeAnswer) and plain.output_ids == (7, 8, 9, 10, 11, 12)
        assert plain.acceptance == Acceptance.none(6) and engine.version == VERSIONS[kind]
        (drafted,) = engine.stream("prompt_lookup", VALUES, [1, 2, 3])
        assert isinstance(drafted, WholeAnswer)
        assert drafted.acceptance.rounds == 3 and drafted.acceptance.accepted == 3
        assert drafted.acceptance.drafted == (8 if kind == "vllm" else None) and drafted.acceptance.hist == (1, 1, 1)
        assert drafted.first == 1 and drafted.reason == "length"
        with refused(400, "ValueError: the prompt is too long"):
            list(engine.stream("prompt_lookup", VALUES, [1] * 51))
        texts = [Text(number, [1, 2, 3], 6) for number in range(7)]
        found = dict(engine.stream_many("prompt_lookup", VALUES, texts, 3))
        assert {
            number: one.output_ids for number, one in found.items() if isinstance(one, WholeAnswer)
        } == dict.fromkeys(range(7), plain.output_ids)


@pytest.mark.parametrize("kind", ["openvino"])
def test_a_drafter_model_is_what_the_plan_names(kind: str, spec: EngineSpec) -> None:
    values = {**VALUES, "gamma": 10}
    with ready([spec], PairEngine(tiny_pair())) as engines:
        (drafted,) = engines["e"].stream("speculative", values, [1, 2, 3])
        assert isinstance(drafted, WholeAnswer) and drafted.acceptance.rounds == 3


@KINDS
def test_a_python_without_the_package_says_so(kind: str, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH")
    with ready([spec], PairEngine(tiny_pair())) as engines, refused(f"No module named '{kind}'"):
        list(engines["e"].stream("target", VALUES, [1, 2, 3]))


@pytest.mark.parametrize("kind", ["openvino"])
def test_a_model_that_it_cannot_load_is_named(kind: str, spec: EngineSpec) -> None:
    spec = EngineSpec("e", kind, python=spec.python, model="m", weights="Q4_1")
    with ready([spec], PairEngine(tiny_pair())) as engines, refused("m: neither a GGUF file nor an exported model"):
        list(engines["e"].stream("target", VALUES, [1, 2, 3]))


def test_a_file_is_needed_where_the_target_came_from_none() -> None:
    spec = EngineSpec("e", "openvino", python=sys.executable)
    with refused("e", "model", "''", "GGUF"), ready([spec], PairEngine(tiny_pair())):
        pass
