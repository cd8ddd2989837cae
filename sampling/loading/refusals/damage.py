"""Which file of a checkpoint is damaged: looked for once it did not load, so that a sound one pays nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from utils.text import first_line

_INDEX = ".index.json"


def damaged(folder: Path) -> str | None:
    """The first file that cannot be read, with the reason, as an error says it; None where all can."""
    for pattern, read in _READERS.items():
        for path in sorted(folder.glob(pattern)):
            try:
                read(path)
            except Exception as error:  # garbage makes its readers stumble over anything
                return f"{path} cannot be read ({first_line(error)}); expected a complete file"
    return None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `OSError`, `ValueError` and `RecursionError`."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values


def _index(path: Path) -> None:
    """The parts that an index names must be there."""
    places = read_object(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError("it has no weight_map")
    for part in sorted(set(places.values())):
        if not (path.parent / part).is_file():
            raise ValueError(f"it names {part}, which is not there")


def _safetensors(path: Path) -> None:
    with safe_open(path, framework="pt"):
        pass


def _pickle(path: Path) -> None:
    if not path.stat().st_size:
        raise ValueError("it is empty")
    try:
        torch.load(path, map_location="meta", weights_only=True)
    except Exception:
        raise ValueError("not a file of tensors that torch.save wrote") from None


# By pattern, the more telling ones first. Other files of a folder are not read by transformers.
_READERS: dict[str, Callable[[Path], object]] = {
    "config.json": read_object,
    "generation_config.json": read_object,
    "tokenizer*.json": read_object,
    "vocab.json": read_object,
    "added_tokens.json": read_object,
    "special_tokens_map.json": read_object,
    "chat_template.jinja": lambda path: path.read_text(encoding="utf-8"),
    f"model*{_INDEX}": _index,
    f"pytorch_model*{_INDEX}": _index,
    "model*.safetensors": _safetensors,
    "pytorch_model*.bin": _pickle,
}
