"""A model over two processes says what it says in one: ids and verdicts in float64, logits, states, landmarks."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3Config

from tests import tiny
from tests.sharded import comparing
from tests.sharded.processes import ended, start

MODELS = ("llama", "qwen2", "qwen3", "biased", "mistral")
SEVERAL_FILES = ("qwen2", "mistral")
CLOSE = 1e-10


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("checkpoints")
    biased = tiny.llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
    configs = {
        "llama": tiny.llama(),
        "qwen2": tiny.qwen2(tie_word_embeddings=True),
        "qwen3": Qwen3Config(**{**tiny._COMMON, "head_dim": 8, "layer_types": None}),
        "mistral": tiny.mistral(sliding_window=None),
        "gpt2": tiny.gpt2(),
        "uneven": tiny.llama(num_attention_heads=3, num_key_value_heads=3, hidden_size=48),
        **dict.fromkeys(("biased", *comparing.PLANTED), biased),
    }
    for name, config in configs.items():
        save(root / name, config)
    assert all(len(list((root / name).glob("*.safetensors"))) > 1 for name in SEVERAL_FILES)
    tiny.save_checkpoint(root / "drafter", tiny.llama(num_hidden_layers=2), noise=0.02)
    out = root / "found.json"
    first, other = ended(start(["-m", "tests.sharded.comparing", str(root), str(out)]))
    assert (first.status, other.status) == (0, 0), f"{first.err[-3000:]}\n{other.err[-3000:]}"
    assert (other.out, other.err) == ("", "")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def save(folder: Path, config: Any) -> None:
    """Random weights; biases too, which are made as zeros."""
    model = tiny.random_model(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.data.normal_(std=0.2)
    model.save_pretrained(folder, max_shard_size="40KB" if folder.name in SEVERAL_FILES else "1GB")
    tiny.tiny_tokenizer().save_pretrained(folder)


@pytest.mark.parametrize("model", MODELS)
def test_logits_and_states_are_the_same(found: dict[str, Any], model: str) -> None:
    assert found[f"logits {model}"] < CLOSE
    assert found[f"rows {model}"] < CLOSE


@pytest.mark.parametrize("model", MODELS)
def test_heads_know_the_model_again(found: dict[str, Any], model: str) -> None:
    one, other = found[f"digest {model}"]
    assert one == other


@pytest.mark.parametrize(
    ("model", "method", "processor", "cache"), comparing.RUNS, ids=lambda given: getattr(given, "name", str(given))
)
def test_ids_and_verdicts_are_the_same(
    found: dict[str, Any], model: str, method: str, processor: Any, cache: bool
) -> None:
    one, other = found[f"run {model} {method} {processor.name} {cache}"]
    assert one == other
    assert any(one)


def test_a_drafter_that_is_cut_drafts_the_same(found: dict[str, Any]) -> None:
    one, other = found["drafter cut"]
    assert one == other


@pytest.mark.parametrize("fault", comparing.PLANTED)
def test_a_planted_fault_is_seen(found: dict[str, Any], fault: str) -> None:
    assert found[fault] > 1e-3


def test_what_is_loaded_is_told(found: dict[str, Any]) -> None:
    processes, detail = found["info llama"]
    assert processes == 2
    assert detail.endswith("tensor parallel over 2")


def test_what_cannot_be_cut_is_refused_and_the_rest_goes_on(found: dict[str, Any]) -> None:
    assert "gpt2" in found["refused gpt2"]
    assert "no tensor-parallel plan" in found["refused gpt2"]
    assert "3 attention heads" in found["refused uneven"]
    assert "--nproc-per-node 1 or 3" in found["refused uneven"]
    assert found["after refusals"] < CLOSE


def test_what_a_forward_sends(found: dict[str, Any]) -> None:
    """A command of 2 KiB, two sums of a layer, and the logits side by side: as docs/scale.md says."""
    layers, hidden, size, half = 3, 32, 8, -(-tiny.TOKENS // 2)
    for name, rows, told in (("prompt", len(comparing.PROMPT), 0), ("one", 1, 1), ("tree", 3, 3)):
        sums = 2 * layers * rows * hidden * size
        assert found["costs"][name] == [1 + 2 * layers + bool(told), 2048 + sums + told * half * size]
