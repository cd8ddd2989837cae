"""A trained drafter on disk: safetensors and config.json, for one base model and no other."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sampling.heads.config import HeadConfig
from utils.errors import UserError
from utils.files import write_atomically

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DRAFT_IDS = "draft_ids"


@dataclass(frozen=True, slots=True)
class Head:
    """A trained drafter as loaded: its configuration, its weights by name, the ids of its draft vocabulary `[D]`."""

    config: HeadConfig
    weights: Mapping[str, Tensor]
    draft_ids: Tensor
    place: str


def save_head(folder: Path, config: HeadConfig, weights: Mapping[str, Tensor], draft_ids: Tensor) -> None:
    """Write a head; each file appears whole. Weights are stored in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().to("cpu", torch.bfloat16).contiguous() for name, weight in weights.items()}
    scratch = folder / f".{WEIGHTS}.{os.getpid()}"
    save_file({**tensors, DRAFT_IDS: draft_ids.to("cpu", torch.int32)}, scratch)
    scratch.replace(folder / WEIGHTS)
    write_atomically(folder / CONFIG, json.dumps(config.as_dict(), indent=2) + "\n")


def load_head(folder: Path) -> Head:
    """Read a head. Raises `UserError` for a folder that is none."""
    config = HeadConfig.from_dict(read_json(folder / CONFIG), str(folder))
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS}: cannot be read: {error}") from error
    if DRAFT_IDS not in weights:
        raise UserError(f"{folder / WEIGHTS} has no {DRAFT_IDS}; expected the folder of a trained head")
    ids = weights.pop(DRAFT_IDS).long()
    return Head(config, {name: weight.float() for name, weight in weights.items()}, ids, str(folder))


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file. Raises `UserError` when there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; expected the folder of a trained head") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a JSON object")
    return values


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """sha256 of weights by name, in bfloat16, so that it is the same whatever dtype they were loaded in."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode())
        total.update(weights[name].detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes())
    return total.hexdigest()
