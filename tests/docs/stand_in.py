"""A small model in the place of the embedded one: with its name, tokenizer, window and kinds of drafters.

Its weights are random: what a command does with its words does not depend on them.
"""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from transformers import AutoConfig

from sampling.heads.config import HeadConfig
from sampling.heads.contents import _MODULES
from sampling.heads.head_files import CONFIG, DRAFT_IDS, WEIGHTS, read_json, save_head
from sampling.loading.heads import MODELS, is_own_head
from sampling.loading.origin import resolve
from sampling.loading.stages import silent
from tests.kept import kept_folder
from tests.tiny import random_model

LAYERS = 3
SIZES = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16}


class StandIn(NamedTuple):
    """Folders: of the model, as the embedded one lies behind its conversion, and of the drafters that come with it."""

    model: Path
    heads: Path


@cache
def stand_in() -> StandIn:
    """Made once a process."""
    made = StandIn(kept_folder() / "model", kept_folder() / "heads")
    embedded = Path(resolve(None, silent).place)
    shutil.copytree(embedded, made.model, ignore=shutil.ignore_patterns(WEIGHTS))
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.from_pretrained(made.model, num_hidden_layers=LAYERS, **SIZES, **heads)
    deep = json.loads((embedded / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    end = config.eos_token_id
    model = random_model(config)
    model.config.eos_token_id = end
    model.save_pretrained(made.model)
    for folder in filter(is_own_head, MODELS.iterdir()):
        _save_like(folder, made.heads / folder.name, deep)
    return made


def _save_like(folder: Path, place: Path, deep: int) -> None:
    """A drafter of the same kind, with its draft vocabulary. deep: layers of the target that it was trained for."""
    config = HeadConfig.from_dict(dict(read_json(folder / CONFIG)), str(folder))
    read = tuple(layer * LAYERS // deep for layer in config.features)
    small = replace(config, base_digest="", features=read, heads=4, kv_heads=2, **SIZES)  # type: ignore[arg-type]
    torch.manual_seed(0)
    weights = {name: 0.1 * torch.randn(one.shape) for name, one in _MODULES[small.method](small).state_dict().items()}
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        save_head(place, small, weights, file.get_tensor(DRAFT_IDS))
