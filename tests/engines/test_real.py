"""Other engines' own programs on the embedded model; where they are, the environment says (docs/engines.md).

WORKBENCH_VLLM_PYTHON: the Python of an environment with vLLM. WORKBENCH_LLAMA_SERVER: llama.cpp's llama-server, with
WORKBENCH_LLAMA_GGUF: the model as a GGUF file in float32. WORKBENCH_OPENVINO_PYTHON: the Python of an environment with
OpenVINO GenAI. Run with -m engines; add -s for the figures.
"""

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from ablation.plan.file import read_experiment
from ablation.report.load import load_results
from ablation.report.write import write_report
from ablation.run.conduct import conduct_into
from engines.fleet import ready
from engines.spec import EngineSpec
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import write_lines
from utils.events import Acceptance, WholeAnswer

VLLM, SERVER, GGUF = "WORKBENCH_VLLM_PYTHON", "WORKBENCH_LLAMA_SERVER", "WORKBENCH_LLAMA_GGUF"
OPENVINO = "WORKBENCH_OPENVINO_PYTHON"
ARGUMENTS = "--dtype float32 --max-model-len 2048 --gpu-memory-utilization 0.4"
ALL_METHODS, COPIES = ["target", "prompt_lookup", "speculative"], ["target", "prompt_lookup"]

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM compiles; other tests must not, so that there is none here."""
    monkeypatch.delenv("CXX")


def needed(*names: str) -> list[str]:
    """What the environment gives."""
    if missing := [name for name in names if not os.environ.get(name)]:
        pytest.skip(f"no {' and '.join(missing)} in the environment")
    return [os.environ[name] for name in names]


def played(place: Path, engine: dict[str, str], methods: list[str]) -> None:
    """The plan on the embedded model and that engine, whose greedy answers must be those of our loop."""
    table = [f"{name} = {json.dumps(value)}" for name, value in engine.items()]
    lines: list[str] = [
        *("length = 48", "limit = 3", 'prompts = ["grounded"]', 'processors = ["greedy"]', "control = false"),
        *("[pair]", 'dtype = "float32"', "[[methods]]", 'method = "prompt_lookup"', "num_speculative_tokens = 10"),
        *("[[methods]]", 'method = "speculative"', "gamma = 4"),
        *("[[engines]]", *table, f"methods = {json.dumps(methods)}", 'weights = "full"'),
    ]
    experiment, out = read_experiment(str(write_lines(place / "p.toml", *lines))), place / "r.csv"
    pair = load_pair(LoadOptions(dtype="float32"))
    conduct_into(out, experiment, PairEngine(pair), command="test", out=Console(), err=Console())
    frame = load_results(out, ("text",))
    theirs = frame[frame["engine"] != "workbench"]
    assert len(theirs) == 3 * len(methods) and not theirs["failed"].any()
    assert set(theirs["referee"]) == {"consistent"} and theirs["engine_version"].notna().all()
    assert set(theirs[theirs["configuration"] != "target"]["divergence_verdict"].astype(str)) == {"exact"}
    assert frame["text"].nunique() == 3
    drafted = theirs[theirs["configuration"] != "target"]
    assert (drafted["accepted"] + drafted["rounds"] == drafted["new_tokens"]).all() and (drafted["drafted"] > 0).all()
    assert drafted["accepted"].sum() > 0
    write_report(out)
    print((place / "r.report" / "report.md").read_text(encoding="utf-8").partition("## Under")[0])


def test_vllm_offline(tmp_path: Path) -> None:
    (python,) = needed(VLLM)
    played(tmp_path, {"name": "vLLM", "kind": "vllm", "python": python, "arguments": ARGUMENTS}, ALL_METHODS)


def test_vllm_served(tmp_path: Path) -> None:
    (python,) = needed(VLLM)
    launch = f"{python} -m vllm.entrypoints.openai.api_server --port {{port}} --model {{model}} {ARGUMENTS} {{options}}"
    played(tmp_path, {"name": "vLLM served", "kind": "openai", "dialect": "vllm", "launch": launch}, COPIES)


def test_llama_cpp(tmp_path: Path) -> None:
    server, gguf = needed(SERVER, GGUF)
    launch = f"{server} -m {{model}} --port {{port}} -c 4096 -np 1 {{options}}"
    engine = {"name": "llama.cpp", "kind": "openai", "dialect": "llamacpp", "launch": launch, "model": gguf}
    played(tmp_path, engine, COPIES)


def test_openvino(tmp_path: Path) -> None:
    """On the file that the target came from, Q4_1. It rounds more than we do: texts may differ, rounds add up."""
    (python,) = needed(OPENVINO)
    spec = EngineSpec("OpenVINO", "openvino", python=python)
    pair = load_pair(LoadOptions(dtype="float32"))
    prompt = PairEngine(pair).tokenise(["Say again: one two three four five six seven eight."], True)
    values = {**Settings(), "length": 24, "num_speculative_tokens": 5}
    with ready([spec], PairEngine(pair)) as engines:
        engine = engines["OpenVINO"]
        assert engine.describe().target.stored == "Q4_1" and engine.describe().target.name.endswith(".gguf")
        (plain,) = engine.stream("target", values, prompt)
        (copied,) = engine.stream("prompt_lookup", values, prompt)
        (again,) = engine.stream("prompt_lookup", values, prompt)
    assert isinstance(plain, WholeAnswer) and isinstance(copied, WholeAnswer) and isinstance(again, WholeAnswer)
    assert "INFERENCE_NUM_THREADS" in engine.version and plain.acceptance == Acceptance.none(len(plain.output_ids))
    rounds, accepted = copied.acceptance.rounds, copied.acceptance.accepted
    assert rounds is not None and accepted is not None and rounds + accepted == len(copied.output_ids)
    assert accepted > 0 and copied.output_ids == again.output_ids, "no rows of the earlier answer were taken over"
    assert 0 < copied.ttft_s < copied.wall_s
    judged = engine.referee(prompt, plain.output_ids)
    assert judged.behind < 2.0, "the same model, rounded further"
    print(engine.version, judged, rounds, len(copied.output_ids), plain.output_ids == copied.output_ids)
