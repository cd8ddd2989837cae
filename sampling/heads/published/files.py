"""A published head on disk: its config.json and its weights, whatever they are stored as."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head, read_json, sound
from utils.errors import UserError
from utils.text import first_line

USUAL = ("model.safetensors", "pytorch_model.bin")
_SCRAP = ".rotary_emb.inv_freq"


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """A published head for a target of `target_layers` layers and `target_vocab` rows of logits.

    embedding: the target's, `[V, H]`. theirs: what the file calls a weight, by our name for it.
    """

    folder: Path
    config: Mapping[str, Any]
    target_layers: int
    target_vocab: int
    embedding: Tensor
    theirs: dict[str, str] = field(default_factory=dict)

    def weights(self, files: Sequence[str] = USUAL, prefix: str = "") -> dict[str, Tensor]:
        """The weights whose names begin with `prefix`, which is cut off, of the first file that is there.

        A file in parts is known by its index, FILE.index.json. Raises `UserError` where there is none.
        """
        for name in files:
            if (self.folder / f"{name}.index.json").is_file():
                return self._parts(name, prefix)
            if (self.folder / name).is_file():
                return _read(self.folder / name, prefix)
        raise UserError(f"{self.folder}: no weights; expected {' or '.join(files)}")

    def refuse(self, why: str, expected: str) -> UserError:
        """The error that says what this head is and what would load."""
        return UserError(f"{self.folder}: {why}; expected {expected}")

    def head(self, config: HeadConfig, weights: Mapping[str, Tensor], draft_ids: Tensor | None = None) -> Head:
        """The head under our names; without ids it drafts from the whole vocabulary."""
        ids = torch.arange(config.draft_vocab) if draft_ids is None else draft_ids
        return sound(Head(config, weights, ids, str(self.folder)))

    def make(self, **values: Any) -> HeadConfig:
        """What its config.json comes to in our words. Raises `UserError` for a value that no head has."""
        return HeadConfig.from_dict(values, str(self.folder))

    def _parts(self, name: str, prefix: str) -> dict[str, Tensor]:
        places = read_json(self.folder / f"{name}.index.json").get("weight_map")
        if not isinstance(places, dict):
            raise self.refuse(f"{name}.index.json has no weight_map", "the index of a checkpoint in parts")
        if not all(isinstance(part, str) for part in places.values()):
            raise self.refuse(f"{name}.index.json names parts that are no files", "the index of a checkpoint in parts")
        parts = sorted({part for weight, part in places.items() if weight.startswith(prefix)})
        return {weight: value for part in parts for weight, value in _read(self.folder / part, prefix).items()}


def _read(path: Path, prefix: str) -> dict[str, Tensor]:
    """Weights of one file by name; nothing but tensors is ever unpickled."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(f"{path}: cannot be read: {first_line(error)}; expected a file of named tensors") from error
    if not isinstance(tensors, dict) or not all(isinstance(weight, Tensor) for weight in tensors.values()):
        raise UserError(f"{path}: no weights by name; expected a file of named tensors")
    return {name.removeprefix(prefix): weight for name, weight in tensors.items() if name.startswith(prefix)}


def rename(files: HeadFiles, weights: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Weights under our names: `names` gives ours for theirs, or for the beginning of theirs that ends in a dot.

    Raises `UserError` for a weight that no entry covers: what is not understood is not left out.
    """
    renamed, strange = {}, []
    for name, weight in weights.items():
        fits = [theirs for theirs in names if name == theirs or (theirs[-1:] in ("", ".") and name.startswith(theirs))]
        if name.endswith(_SCRAP):
            continue
        if not fits:
            strange.append(name)
            continue
        theirs = max(fits, key=len)
        ours = names[theirs] + name.removeprefix(theirs)
        renamed[ours], files.theirs[ours] = weight, name
    if strange:
        raise files.refuse(f"it has weights beyond its layout: {', '.join(strange)}", "only those of the layout")
    return renamed


def check_shapes(
    files: HeadFiles, weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], prefix: str = ""
) -> None:
    """Raises `UserError` for a weight that is missing, or has another shape than config.json says.

    prefix: what our names begin with and these do not.
    """
    for name, shape in shapes.items():
        if name not in weights:
            raise files.refuse(f"it has no {name}", f"a head with {', '.join(shapes)}")
        if tuple(weights[name].shape) != shape:
            told = f"{files.theirs.get(prefix + name, name)} is {list(weights[name].shape)}"
            raise files.refuse(told, f"{list(shape)}, as its config.json says")
