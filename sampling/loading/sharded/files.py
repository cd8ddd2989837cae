"""The part of a checkpoint that one process holds, read from safetensors without the rest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from sampling.forward.sharded.cut import EMBEDDING, HEAD, TensorCut
from sampling.loading.fast_load import WEIGHTS_FILE
from sampling.loading.origin import ModelOrigin
from sampling.loading.refusals.damage import read_object
from utils.errors import UserError

_INDEX = f"{WEIGHTS_FILE}.index.json"


class CutFiles:
    """Weights by name, of which this process's part is read when it is asked for: see `Weights`.

    places: the file of each. The embedding is whole, and stays a view of its file where the dtype allows; a tied output
    matrix is some of its rows.
    """

    def __init__(self, places: Mapping[str, Path], cut: TensorCut, device: torch.device, dtype: torch.dtype) -> None:
        self._places, self._cut, self._device, self._dtype = places, cut, device, dtype

    def __contains__(self, name: object) -> bool:
        return name in self._places and not self._cut.lacks(str(name))

    def pop(self, name: str, default: Any = None) -> Any:
        """This process's part on the device; `default` where there is none, and its part for a tied output."""
        if name not in self._places:
            tied = name == f"{HEAD}.weight" and default is not None
            return self._cut.of(name, default, *default.shape) if tied else default
        if self._cut.lacks(name):
            return default
        with safe_open(self._places[name], framework="pt") as file:
            stored = file.get_slice(name)
            part: Tensor = (
                file.get_tensor(name) if name == EMBEDDING else self._cut.of(name, stored, *stored.get_shape())
            )
        return part.to(self._device, self._dtype)


def shapes_in(places: Mapping[str, Path]) -> dict[str, torch.Size]:
    """The shape of every weight, by name."""
    shapes = dict[str, torch.Size]()
    for path in dict.fromkeys(places.values()):
        with safe_open(path, framework="pt") as file:
            here = (name for name in file.keys() if places.get(name) == path)  # noqa: SIM118
            shapes |= {name: torch.Size(file.get_slice(name).get_shape()) for name in here}
    return shapes


def weight_files(origin: ModelOrigin, local_files_only: bool) -> dict[str, Path]:
    """The file that each weight of a checkpoint lies in. Raises `UserError` for one without safetensors."""
    folder = Path(origin.place if origin.local else _fetched(origin.place, local_files_only))
    if (folder / _INDEX).is_file():
        listed: Mapping[str, str] = read_object(folder / _INDEX)["weight_map"]
        return {name: folder / file for name, file in listed.items()}
    if not (folder / WEIGHTS_FILE).is_file():
        raise UserError(
            f"{origin.name}: it has no {WEIGHTS_FILE}, of which each process reads its part; expected a checkpoint in "
            "safetensors, or one process"
        )
    with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
        return dict.fromkeys(file.keys(), folder / WEIGHTS_FILE)


def _fetched(hub_id: str, local_files_only: bool) -> str:
    """The folder of a hub's model in the cache, with its weights."""
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "model*.safetensors"]
    return str(snapshot_download(hub_id, allow_patterns=wanted, local_files_only=local_files_only))
