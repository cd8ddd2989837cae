"""The layers of an EAGLE-3 head: how many there are, what their weights are called, and what each must be.

SafeAILab (eagle/model/cnets.py), AngelSlim and SpecForge have one layer, `midlayer`, whatever `num_hidden_layers` says:
some published configs repeat the target's. vLLM (model_executor/models/llama_eagle3.py) and speculators
(models/eagle3/core.py) count them in `layers.N`: the first reads [normed embedding; normed feature], each later one is
a plain block over what the one before gives, behind `input_layernorm`. TensorRT-LLM
(_torch/models/modeling_speculative.py) calls that norm `hidden_norm`. A later layer with both norms reads the embedding
again there (`next_layer_regular` false).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.published.block_weights import check_block
from sampling.heads.published.files import HeadFiles

_ALONE, _COUNTED = "midlayer.", "layers."
_NORMS = "input_layernorm.weight", "hidden_norm.weight"


def count_layers(files: HeadFiles, names: Iterable[str], stated: Any, parallel: bool = False) -> int:
    """How many layers these weights have; stated: what config.json says.

    Raises `UserError` where the two differ. A `midlayer` without other layers is one, unless the head is `parallel`.
    """
    there = {0 if name.startswith(_ALONE) else _number(name) for name in names}
    found = sorted(number for number in there if number is not None)
    if found == [0] and not parallel and not any(name.startswith(_COUNTED) for name in names):
        return 1
    if found != list(range(len(found))) or len(found) != stated:
        listed = f"layers {', '.join(map(str, found))}" if found else "no layer"
        raise files.refuse(
            f"its weights hold {listed}, and its config.json has num_hidden_layers {stated}",
            "layers 0 to num_hidden_layers - 1",
        )
    return len(found)


def later_names(files: HeadFiles, names: Iterable[str]) -> dict[str, str]:
    """Our names for the weights of the layers behind the first: see `rename`. Raises `UserError` for two norms."""
    there, renamed = set(names), dict[str, str]()
    for number in sorted({number for name in there if (number := _number(name))}):
        theirs, ours = f"{_COUNTED}{number}.", f"later.{number - 1}."
        normed = [f"{theirs}{norm}" for norm in _NORMS if f"{theirs}{norm}" in there]
        if len(normed) > 1:
            raise files.refuse(f"its layer {number} has {' and '.join(normed)}", "one norm in front of a later layer")
        renamed |= {theirs: ours} | dict.fromkeys(normed, f"{ours}{_NORMS[0]}")
    return renamed


def check_layers(files: HeadFiles, config: HeadConfig, weights: Mapping[str, Tensor]) -> None:
    """Raises `UserError` where the weights under `block.` and `later.` are not those of our blocks."""
    check_block(files, config, weights)
    for place in range(config.layers - 1):
        prefix = f"later.{place}."
        check_block(files, replace(config, fuse="linear"), weights, prefix)
        if f"{prefix}{_NORMS[0]}" not in weights:
            raise files.refuse(f"its layer {place + 1} has no {_NORMS[0]}", "a block with a norm in front")


def _number(name: str) -> int | None:
    """N of a weight in `layers.N`."""
    head, number, *_ = *name.split("."), ""
    return int(number) if f"{head}." == _COUNTED and number.isdecimal() else None
