"""Targets of a shape, with random weights: they run, they are the same every time, and their text means nothing."""

import json
from pathlib import Path

import psutil
import pytest
import torch

from sampling.loading import random_weights
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused

SHAPE = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 49160,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
}


def shape(folder: Path, **changes: object) -> str:
    (folder / "config.json").write_text(json.dumps({**SHAPE, **changes}))
    return f"random:{folder / 'config.json'}"


def test_any_shape_runs_with_a_drafter_of_another(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    small = shape(tmp_path / "small", num_hidden_layers=1)
    pair = load_pair(LoadOptions(shape(tmp_path), small, device="cpu", dtype="float32"))
    assert pair.target.model.num_layers == 2 and pair.drafter is not None and pair.drafter.model.num_layers == 1
    assert any("its text means nothing" in note for note in pair.notes) and not pair.stop and not pair.heads
    engine, ids = PairEngine(pair), pair.encode(["Hello"], chat=True)
    values = {**Settings(), "length": 12, "accept_policy": "synthetic"}
    assert list(engine.stream("speculative", values, ids))
    again = load_pair(LoadOptions(shape(tmp_path), device="cpu", dtype="float32"))
    assert again.digest == pair.digest and torch.equal(again.target.model.embedding, pair.target.model.embedding)


def test_the_shapes_are_those_of_their_models() -> None:
    sizes = {
        name: sum(one.numel() for one in random_weights._shapes(random_weights.config_of(f"random:{name}")).values())
        for name in random_weights.SHAPES
    }
    assert {name: round(count / 1e6) for name, count in sizes.items()} == {
        "llama-135m": 135, "llama-1b": 1236, "llama-8b": 8030,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ("random:llama-9b", ("random:llama-9b", "llama-135m", "llama-1b", "llama-8b", "config.json")),
        ("random:", ("random:", "llama-135m", "llama-1b", "llama-8b", "config.json")),
    ],
)
def test_what_is_no_shape_is_refused(given: str, quoted: tuple[str, ...]) -> None:
    with refused(*quoted):
        load_pair(LoadOptions(given, device="cpu"))


def test_shapes_that_cannot_be_had_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(tmp_path / "config.json", "vocab_size 100", "49,152"):
        load_pair(LoadOptions(shape(tmp_path, vocab_size=100), device="cpu", dtype="float32"))
    with refused(tmp_path / "config.json", "Qwen2ForCausalLM", "lean forward"):
        load_pair(LoadOptions(shape(tmp_path, hidden_act="gelu"), device="cpu", dtype="float32"))
    memory = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(random_weights.psutil, "virtual_memory", lambda: memory)
    with refused(tmp_path / "config.json", "float32", "cpu", "0.0 GiB", "--dtype bfloat16", "--device"):
        load_pair(LoadOptions(shape(tmp_path), device="cpu", dtype="float32"))
