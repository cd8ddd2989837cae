"""A converted checkpoint straight into the lean form, without transformers' model code.

Importing that code costs more than everything else at start, and it would only be asked for shapes.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from sampling.forward.kernels.formats import FORMATS, FULL
from sampling.forward.kernels.probe import copies_weights
from sampling.forward.kernels.shape_check import LayerSizes, refuse_indivisible
from sampling.forward.models import lean
from sampling.loading.gguf.cache import META
from sampling.loading.refusals.damage import read_object

WEIGHTS_FILE = "model.safetensors"
_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


class _File:
    """Weights by name, read when they are asked for, so that a model is in memory once while it is built.

    The embedding stays a view of the file where the dtype allows: only the rows of tokens that occur are
    ever read. A tied head that is packed or rounded anyway is then read on its own, which leaves those pages alone.
    """

    def __init__(self, path: Path, device: torch.device, dtype: torch.dtype, weights: str) -> None:
        self._path, self._device, self._dtype = path, device, dtype
        with safe_open(path, framework="pt") as file:
            self._names = set(file.keys())
        copied = weights != FULL or copies_weights(device.type, dtype)
        self._own_head = _HEAD not in self._names and copied

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def pop(self, name: str, default: Any = None) -> Any:
        """The weight on the device, or `default` where the file has none."""
        if name == _HEAD and self._own_head:
            return self._read(_EMBEDDING)
        return self._read(name) if name in self._names else default

    def _read(self, name: str) -> Tensor:
        """A mapping of its own for each weight: it goes, and its pages with it, when the weight does."""
        with safe_open(self._path, framework="pt") as file:
            weight: Tensor = file.get_tensor(name).to(self._device, self._dtype)
        return weight


def lean_folder(folder: Path, device: torch.device, dtype: torch.dtype, weights: str = FULL) -> lean.LeanModel | None:
    """The model of a folder that this program converted, its weights in a format of `FORMATS`.

    None where the lean forward does not cover it. Only our own conversions: their config.json is written whole, so
    that no default of a transformers class has to be known.
    """
    config = converted_shape(folder)
    if config is None:
        return None
    refuse_indivisible(weights, folder.name, LayerSizes.of_config(config), f"target_weights {weights}")
    stored = _File(folder / WEIGHTS_FILE, device, dtype, weights)
    return lean.from_weights(config, stored, FORMATS[weights])


def converted_shape(folder: Path) -> Any | None:
    """The configuration of a folder that this program converted; None as above."""
    if not (folder / META).is_file() or not (folder / WEIGHTS_FILE).is_file():
        return None
    config = SimpleNamespace(**read_object(folder / "config.json"))
    return config if lean.covers(config.architectures[0], config) else None
