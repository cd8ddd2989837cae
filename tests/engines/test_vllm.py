"""Kind vllm: a process of vLLM's own Python, here with a package that stands in for it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from engines.fleet import ready
from engines.spec import EngineSpec
from sampling.engine import Text
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.engines.fake_vllm import write_package
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.events import Acceptance, WholeAnswer


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineSpec:
    monkeypatch.setenv("PYTHONPATH", str(write_package(tmp_path)))
    return EngineSpec("v", "vllm", python=sys.executable, arguments="--dtype float32", model="m")


def test_answers_with_rounds_and_errors_that_stay_with_their_request(spec: EngineSpec) -> None:
    values: dict[str, Any] = {**Settings(), "length": 6}
    with ready([spec], PairEngine(tiny_pair())) as engines:
        engine = engines["v"]
        (plain,) = engine.stream("target", values, [1, 2, 3])
        assert isinstance(plain, WholeAnswer) and plain.output_ids == (7, 8, 9, 10, 11, 12)
        assert plain.acceptance == Acceptance.none(6) and engine.version == "fake"
        (drafted,) = engine.stream("prompt_lookup", values, [1, 2, 3])
        assert isinstance(drafted, WholeAnswer)
        assert drafted.acceptance.rounds == 3 and drafted.acceptance.accepted == 3
        assert drafted.first == 1 and drafted.reason == "length"
        with refused(400, "ValueError: the prompt is too long"):
            list(engine.stream("prompt_lookup", values, [1] * 51))
        texts = [Text(number, [1, 2, 3], 6) for number in range(7)]
        found = dict(engine.stream_many("prompt_lookup", values, texts, 3))
        assert {
            number: one.output_ids for number, one in found.items() if isinstance(one, WholeAnswer)
        } == dict.fromkeys(range(7), plain.output_ids)


def test_a_python_without_vllm_says_so(spec: EngineSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH")
    with ready([spec], PairEngine(tiny_pair())) as engines, refused("No module named 'vllm'"):
        list(engines["v"].stream("target", Settings(), [1, 2, 3]))
