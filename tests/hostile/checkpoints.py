"""Checkpoints whose files are damaged, missing or at odds with each other, as target and as drafter."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from sampling.loading.pairs import LoadOptions, load_pair
from tests.hostile.row import Row
from tests.kept import kept_folder
from tests.tiny import llama, save_checkpoint, save_gguf
from utils.files import CACHE_VARIABLE

Damage = Callable[[Path], object]
WEIGHTS, CONFIG, SETTINGS, TOKENIZER = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
)


@cache
def whole() -> Path:
    """A checkpoint without a fault, which rows copy."""
    return save_checkpoint(kept_folder() / "whole", llama())


@cache
def whole_gguf() -> bytes:
    return save_gguf(kept_folder() / "whole.gguf", whole()).read_bytes()


def file(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Damage:
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


def without(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def configured(**changes: Any) -> Damage:
    """Other values in config.json."""

    def damage(folder: Path) -> None:
        values = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(values | changes))

    return damage


def weighed(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Damage:
    """Other weights."""

    def damage(folder: Path) -> None:
        save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})

    return damage


def pickled(content: bytes) -> Damage:
    def damage(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / "pytorch_model.bin").write_bytes(content)

    return damage


def indexed(content: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / f"{WEIGHTS}.index.json").write_text(content)

    return damage


def _load(target: Path | str, drafter: Path | str | None = None) -> str:
    given = None if drafter is None else str(drafter)
    pair = load_pair(LoadOptions(str(target), given, device="cpu", dtype="float32", kernel="plain"))
    return f"loaded. {' '.join(pair.notes)}"


def _copied(damage: Damage) -> Damage:
    def write(folder: Path) -> None:
        shutil.copytree(whole(), folder / "it")
        damage(folder / "it")

    return write


def row(damage: Damage, *says: object, name: str, status: int = 2) -> Row:
    return Row("python", lambda folder: _load(folder / "it"), status, says, _copied(damage), name=name)


def gguf(content: Callable[[], bytes], *says: object, name: str) -> Row:
    def act(folder: Path) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
            return _load(folder / "it.gguf")

    def write(folder: Path) -> None:
        (folder / "it.gguf").write_bytes(content())

    return Row("python", act, 2, ("it.gguf", *says), write, makes=("cache/*",), name=name)


def _dropped(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight for name, weight in weights.items() if "layers.1.mlp.up" not in name}


_COMPLETE = "expected a complete file"
ROWS = [
    row(lambda _: None, "loaded.", name="whole", status=0),
    row(file(WEIGHTS, b""), WEIGHTS, "header too small", _COMPLETE, name="no weights"),
    row(file(WEIGHTS, b"garbage " * 99), WEIGHTS, "header too large", _COMPLETE, name="garbage for weights"),
    row(cut(WEIGHTS), WEIGHTS, "not fully covered", _COMPLETE, name="half of the weights"),
    row(without(WEIGHTS), "cannot load its weights", WEIGHTS, name="weights missing"),
    row(pickled(b""), "pytorch_model.bin", "it is empty", _COMPLETE, name="an empty pickle"),
    row(pickled(b"garbage " * 99), "pytorch_model.bin", "not a file of tensors", name="garbage for a pickle"),
    row(indexed('{"weight_map": {"a": "part-1"}}'), "names part-1, which is not there", name="a missing part"),
    row(indexed("{"), f"{WEIGHTS}.index.json", _COMPLETE, name="half an index"),
    row(indexed('{"weight_map": 5}'), "it has no weight_map", name="an index of nothing"),
    row(weighed(_dropped), "lack model.layers.1.mlp.up_proj.weight", name="a tensor missing"),
    row(
        configured(num_hidden_layers=5), "lack model.layers.3.input_layernorm.weight and 17 more", name="too few layers"
    ),
    row(configured(num_hidden_layers=2), "no place for model.layers.2", "left out", name="too many layers", status=0),
    row(configured(vocab_size=99), "its weights", "other shapes", name="another vocabulary"),
    row(configured(hidden_size="abc"), "config.json", "'hidden_size' expected int", name="a word for a size"),
    row(configured(num_attention_heads=-4), "num_attention_heads in config.json: -4", name="negative heads"),
    row(configured(num_attention_heads=0), "config.json", "modulo by zero", name="no heads"),
    row(configured(num_hidden_layers=0), "num_hidden_layers in config.json: 0", name="no layers"),
    row(configured(vocab_size=None), "config.json", "'vocab_size' expected int", name="no vocabulary"),
    row(configured(max_position_embeddings=0), "max_position_embeddings in config.json: 0", name="no window"),
    row(configured(max_position_embeddings=10**13), "memory", name="a window beyond memory"),
    row(configured(hidden_act="nope"), "KeyError: 'nope'", name="an unknown activation"),
    row(configured(rope_parameters=[1]), "config.json", "rope_parameters", name="a list for a rotary embedding"),
    row(configured(model_type="zzz"), "config.json", "`zzz`", name="an unknown architecture"),
    row(configured(model_type=None), "config.json", "`None`", name="no architecture"),
    row(configured(eos_token_id="abc"), "config.json", "eos_token_id", name="a word for an id"),
    row(file(CONFIG, b"\xff{"), CONFIG, "can't decode", _COMPLETE, name="garbage for a config"),
    row(file(CONFIG, b"[]"), CONFIG, "not a JSON object", name="a list for a config"),
    row(file(CONFIG, b"3"), CONFIG, "not a JSON object", name="a number for a config"),
    row(file(CONFIG, b"[" * 50_000), CONFIG, "recursion", name="a config of brackets"),
    row(file(TOKENIZER, b""), TOKENIZER, _COMPLETE, name="an empty tokenizer"),
    row(file(TOKENIZER, b"[]"), TOKENIZER, "not a JSON object", name="a list for a tokenizer"),
    row(file(TOKENIZER, b'{"a": 1}'), "its tokenizer", "KeyError", name="another object for a tokenizer"),
    row(cut(TOKENIZER), TOKENIZER, _COMPLETE, name="half a tokenizer"),
    row(without(TOKENIZER), "its tokenizer", "tokenizer.json", name="no tokenizer"),
    row(file("tokenizer_config.json", b"[]"), "tokenizer_config.json", "not a JSON object", name="tokenizer_config"),
    row(file(SETTINGS, b"{{{"), SETTINGS, "expected a complete file, or none", name="garbage for settings"),
    row(file(SETTINGS, b"null"), SETTINGS, "not a JSON object", name="null for settings"),
    row(file(SETTINGS, b'{"eos_token_id": "abc"}'), "eos_token_id: 'abc'", name="a stop token that is a word"),
    row(file(SETTINGS, b'{"eos_token_id": 2.7}'), "eos_token_id: 2.7", name="a stop token between two"),
    row(file(SETTINGS, b'{"eos_token_id": true}'), "eos_token_id: True", name="a stop token that is true"),
    row(file(SETTINGS, b'{"eos_token_id": [[1]]}'), "eos_token_id: [[1]]", name="nested stop tokens"),
    row(
        file(SETTINGS, b'{"eos_token_id": 99999}'), "99999 is none of its 261 tokens", name="a far stop token", status=0
    ),
    row(file(SETTINGS, b'{"temperature": "hot"}'), "ignored: temperature=hot", name="a hot setting", status=0),
    gguf(lambda: b"", "empty file", name="an empty GGUF"),
    gguf(lambda: b"GGUF" + b"\xff" * 5000, "version", name="a GGUF of another version"),
    gguf(lambda: whole_gguf()[: len(whole_gguf()) // 2], "expected a complete GGUF file", name="half a GGUF"),
    gguf(lambda: whole_gguf()[:-1], "expected a complete GGUF file", name="a GGUF without its end"),
    gguf(lambda: whole_gguf().replace(b"llama", b"zzzma"), "architecture zzzma", name="a GGUF of no architecture"),
    gguf(
        lambda: whole_gguf().replace(b"blk.1.ffn_up", b"blk.9.ffn_up"), "lack model.layers.1", name="a GGUF with a hole"
    ),
    Row(
        "python",
        lambda folder: _load(whole(), folder / "it"),
        2,
        (WEIGHTS, _COMPLETE),
        _copied(cut(WEIGHTS)),
        name="half of a drafter's weights",
    ),
    Row(
        "python",
        lambda folder: _load(whole(), folder / "it"),
        2,
        (CONFIG, "not a JSON object"),
        _copied(file(CONFIG, b"[]")),
        name="a list for a drafter's config",
    ),
    Row(
        "infer",
        ("run", "--target", "{folder}/it", "--prompt", "a"),
        2,
        (WEIGHTS, "cannot be read", _COMPLETE),
        _copied(file(WEIGHTS, b"")),
        name="no weights, on the command line",
    ),
]
