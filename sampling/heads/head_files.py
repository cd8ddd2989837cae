"""A trained drafter on disk: safetensors and config.json, for one base model and no other."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.contents import check_draft_ids, check_numbers, check_weights
from utils.errors import UserError
from utils.files import write_atomically
from utils.text import first_line

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DRAFT_IDS = "draft_ids"


@dataclass(frozen=True, slots=True)
class Head:
    """A trained drafter as loaded: its configuration, its weights by name, the ids of its draft vocabulary `[D]`.

    window: positions that it drafts for, where they are not those of its configuration.
    """

    config: HeadConfig
    weights: Mapping[str, Tensor]
    draft_ids: Tensor
    place: str
    window: int | None = None

    def positions(self, target: int) -> int:
        """How many positions it drafts for, behind a target whose window has `target` of them."""
        return min(self.config.window if self.window is None else self.window, target)


def save_head(folder: Path, config: HeadConfig, weights: Mapping[str, Tensor], draft_ids: Tensor) -> None:
    """Write a head; each file appears whole. Weights are stored in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: weight.detach().to("cpu", torch.bfloat16).contiguous() for name, weight in weights.items()}
    scratch = folder / f".{WEIGHTS}.{os.getpid()}"
    save_file({**tensors, DRAFT_IDS: draft_ids.to("cpu", torch.int32)}, scratch)
    scratch.replace(folder / WEIGHTS)
    write_atomically(folder / CONFIG, json.dumps(config.as_dict(), indent=2) + "\n")


def load_head(folder: Path) -> Head:
    """Read a head. Raises `UserError` for a folder that is none, by the file and the key or weight that is wrong."""
    config = HeadConfig.from_dict(read_json(folder / CONFIG), str(folder))
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS}: cannot be read: {error}") from error
    if DRAFT_IDS not in weights:
        raise UserError(f"{folder / WEIGHTS} has no {DRAFT_IDS}; expected the folder of a trained head")
    ids = weights.pop(DRAFT_IDS)
    check_weights(str(folder), config, weights)
    return sound(Head(config, weights, ids, str(folder)))


def sound(head: Head) -> Head:
    """The head, its weights in float32. Raises `UserError` for numbers and draft ids that no head has."""
    check_numbers(head.place, head.config, head.weights)
    check_draft_ids(head.place, head.config, head.draft_ids)
    weights = {name: weight.float() for name, weight in head.weights.items()}
    return replace(head, weights=weights, draft_ids=head.draft_ids.long())


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file. Raises `UserError` when there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; expected the folder of a trained head") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {first_line(error)}; expected a JSON object") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a JSON object; expected the configuration of a trained head")
    return values


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """sha256 of weights by name, in bfloat16, so that it is the same whatever dtype they were loaded in."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode())
        total.update(weights[name].detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes())
    return total.hexdigest()
