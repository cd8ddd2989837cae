"""Heads with nonsense in their configuration, weights or draft ids: ours, and published ones."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sampling.forward.models.lean import from_transformers
from sampling.loading.heads import heads_for
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests import published
from tests.heads import random_heads
from tests.hostile.row import Row
from tests.tiny import TOKENS, tiny_pair
from tests.tiny_heads import pair_of as published_pair
from tests.tiny_models import make
from utils.events import Round

Damage = Callable[[Path], object]
_HEADS = random_heads(32, 3, 512, tuple(range(0, TOKENS, 2)), TOKENS)
_PAIR = tiny_pair()


def configured(**changes: Any) -> Damage:
    """Other values in config.json; None takes a key away."""

    def damage(head: Path) -> None:
        values = json.loads((head / "config.json").read_text()) | changes
        (head / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))

    return damage


def file(name: str, content: bytes) -> Damage:
    return lambda head: (head / name).write_bytes(content)


def weighed(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Damage:
    def damage(head: Path) -> None:
        save_file(change(load_file(head / "model.safetensors")), head / "model.safetensors")

    return damage


def ids(change: Callable[[Tensor], Tensor]) -> Damage:
    return weighed(lambda weights: weights | {"draft_ids": change(weights["draft_ids"]).contiguous()})


def first(change: Callable[[Tensor], Tensor | None]) -> Damage:
    """The first weight by name, changed, or left out where nothing comes back."""

    def damage(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        name = sorted(weights.keys() - {"draft_ids"})[0]
        changed = change(weights.pop(name))
        return weights if changed is None else weights | {name: changed.contiguous()}

    return weighed(damage)


def poked(value: float) -> Callable[[Tensor], Tensor]:
    def poke(weight: Tensor) -> Tensor:
        weight.view(-1)[0] = value
        return weight

    return poke


def _draft(kind: str, head: Path) -> str:
    """A few rounds, as text."""
    engine = PairEngine(replace(_PAIR.fresh(), heads=heads_for("tiny", str(head))))
    settings = Settings()
    settings.assign_all([("length", "4"), ("gamma", "2"), ("draft_weights", "full")])
    rounds = [event for event in engine.stream(kind, settings, [7, 90, 12]) if isinstance(event, Round)]
    return f"{len(rounds)} rounds" if rounds else "nothing"


def row(kind: str, damage: Damage, *says: object, status: int = 2) -> Row:
    def write(folder: Path) -> None:
        shutil.copytree(_HEADS[kind], folder / "head")
        damage(folder / "head")

    name = f"{kind}: {says[0] if says else 'whole'}"
    return Row("python", lambda folder: _draft(kind, folder / "head"), status, says, write, name=name)


def _published(config: dict[str, Any], weights: dict[str, Tensor] | None = None, *, says: tuple[object, ...]) -> Row:
    """An EAGLE-1 head of others, with other values and weights."""

    def write(folder: Path) -> None:
        torch.manual_seed(5)
        own_config, own_weights = published.eagle(False)
        published.write(folder / "head", (own_config | config, own_weights | (weights or {})), "model.safetensors")

    def act(folder: Path) -> str:
        return str(published_pair(_TARGET, {"eagle": folder / "head"}).head("eagle").config.method)

    return Row("python", act, 2, says, write, name=f"published: {says[0]}")


_TARGET = from_transformers(make("llama"))
_BAD = torch.full((published.SIZE, 2 * published.SIZE), float("nan"))
ROWS = [
    *(row(kind, lambda _: None, "rounds", status=0) for kind in _HEADS),
    row("medusa", configured(steps=0), "steps: 0", "from 1 to 1000"),
    row("medusa", configured(steps=-1), "steps: -1"),
    row("medusa", configured(steps=10**9), "steps: 1000000000"),
    row("eagle", configured(steps="x"), "steps: 'x'"),
    row("hydra", configured(steps=True), "steps: True"),
    row("hydra", configured(steps=2), "heads.2.0.linear.bias is among its weights"),
    row("medusa", configured(layers=5), "its weights lack heads.0.1.linear.bias"),
    row("medusa", configured(layers=0), "layers: 0"),
    row("eagle", configured(hidden_size="x"), "hidden_size: 'x'"),
    row("eagle", configured(hidden_size=10**12), "hidden_size: 1000000000000"),
    row("mtp", configured(hidden_size=7), "embed_norm.weight is [32]", "[7]"),
    row("mtp", configured(vocab_size=-1), "vocab_size: -1"),
    row("mtp", configured(vocab_size=500), "vocabulary 500", "expected a head for this target"),
    row("eagle", configured(draft_vocab=7), "draft_ids are [131] of torch.int32"),
    row("eagle", configured(heads=0), "heads: 0"),
    row("eagle", configured(kv_heads=3), "kv_heads: 3", "a divisor of heads 2"),
    row("eagle", configured(head_dim=-1), "head_dim: -1"),
    row("eagle", configured(intermediate_size=7), "gate_proj.weight is [8, 32]"),
    row("eagle", configured(window="x"), "window: 'x'"),
    row("eagle", configured(rms_norm_eps="x"), "rms_norm_eps: 'x'", "a number above 0"),
    row("eagle", configured(rms_norm_eps=float("nan")), "rms_norm_eps: nan"),
    row("mtp", configured(rope_theta=0), "rope_theta: 0"),
    row("mtp", configured(rope_scaling={"rope_type": "zz"}), "rotary embedding cannot be computed"),
    row("mtp", configured(rope_scaling=5), "rope_scaling: 5"),
    row("mtp", configured(features=[99]), "reads the states [99] of tiny", 0, 3),
    row("eagle", configured(features=5), "features, ranks or attention_windows hold no lists"),
    row("mtp", configured(features=[]), "features []"),
    row("medusa", configured(ranks=[["a"]]), "ranks: (('a',),)", "shares from 0 to 1"),
    row("medusa", configured(ranks=[[]]), "ranks: ((),)"),
    row("mtp", configured(normed="x"), "normed: 'x'", "true or false"),
    row("medusa", configured(own_output=True), "own_output true"),
    row("eagle", configured(fuse="zzz"), "fuse: 'zzz'", "linear or attention"),
    row("mtp", configured(recommended=5), "recommended: 5"),
    row("medusa", configured(method=["a"]), "method: ['a']"),
    row("medusa", configured(method="zzz"), "no medusa head for tiny is known"),
    row("mtp", configured(base_digest="abc"), "was trained on the weights of tiny"),
    row("mtp", configured(step=1), "config.json has 'step'", "'steps'"),
    row("mtp", configured(base=None, draft_vocab=None), "config.json has no base, draft_vocab"),
    row("eagle", file("config.json", b'{"method":' + b"[" * 50_000), "config.json: not JSON", "recursion"),
    row("eagle", file("config.json", b"[]"), "config.json: not a JSON object"),
    row("eagle", file("config.json", b""), "config.json: not JSON"),
    row("eagle", file("model.safetensors", b""), "model.safetensors: cannot be read"),
    row("medusa", ids(lambda ids: ids + 1000), "draft_ids are given twice or unknown"),
    row("hydra", ids(lambda ids: ids - 5), "draft_ids are given twice or unknown"),
    row("eagle", ids(lambda ids: ids * 0), "draft_ids are given twice or unknown"),
    row("mtp", ids(lambda ids: ids[:5]), "draft_ids are [5]"),
    row("mtp", ids(lambda ids: ids.float() + 0.5), "of torch.float32"),
    row("mtp", weighed(lambda weights: {k: v for k, v in weights.items() if k != "draft_ids"}), "has no draft_ids"),
    row("medusa", first(poked(float("nan"))), "heads.0.0.linear.bias holds NaN or infinity"),
    row("eagle", first(poked(float("inf"))), "holds NaN or infinity"),
    row("mtp", first(lambda weight: weight.to(torch.int8)), "holds torch.int8"),
    row("hydra", first(lambda weight: weight[:-1]), "as its config.json says"),
    row("hydra", first(lambda _: None), "its weights lack heads.0.0.linear.bias"),
    row("hydra", weighed(lambda weights: weights | {"more": torch.ones(3)}), "more is among its weights"),
    _published({"hidden_size": "x"}, says=("hidden_size is 'x' in its config.json",)),
    _published({"num_attention_heads": 0}, says=("num_attention_heads is 0",)),
    _published({"vocab_size": "x"}, says=("vocab_size: 'x'",)),
    _published({"max_position_embeddings": -5}, says=("window: -5",)),
    _published({"rms_norm_eps": None}, says=("rms_norm_eps: None",)),
    _published({"rope_scaling": [3]}, says=("a value is of the wrong kind",)),
    _published({}, {"fc.weight": _BAD}, says=("fc.weight holds NaN or infinity",)),
]
