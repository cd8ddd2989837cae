"""Prefilled states in files: one a prompt, each whole or not there."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from sampling.handover import Handover, other_text
from sampling.pair.pair import Pair
from sampling.prefilled.packed import TOKENS, PrefillMaker, layers_in, packed, seconds_in, tokens_in, unpacked
from utils.errors import UserError, wrong_value
from utils.files import write_atomically
from utils.json_text import read_json
from utils.text import first_line
from utils.token_ids import alike

SUFFIX = ".safetensors"
_FORMAT, _OLDER, _ABOUT = "prefilled-state-2", "prefilled-state-1", "about"
_SUMS, _SUM = "tensors", "checksum"


@dataclass(frozen=True, slots=True)
class StateFile:
    """What a file says of itself.

    tokens: of the prompt but its last one. layers: of which it has states. prompt: a line of a prompt file, or none.
    """

    path: Path
    maker: PrefillMaker
    tokens: tuple[int, ...]
    layers: frozenset[int]
    prefill_s: float
    prompt: str


def write_state(path: Path, handover: Handover, maker: PrefillMaker, prompt: str = "") -> int:
    """Write what a prompt left; the file's bytes. prompt: see `StateFile`. Raises `OSError`."""
    tensors = packed(handover.state)
    about = {**maker.as_dict(), "prefill_s": handover.prefill_s, "prompt": prompt}
    about[_SUMS] = {name: _checksum(tensor) for name, tensor in tensors.items()}
    content = save(tensors, {"format": _FORMAT, _ABOUT: json.dumps({**about, _SUM: _checksum(about)})})
    try:
        write_atomically(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    return len(content)


class StateFiles:
    """States in a file or in those of a folder, each read when it is asked for. Raises `UserError` where none is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.files = tuple(map(_head, _paths(place)))
        self._of = {file.tokens: file for file in self.files}

    def refuse_other(self, pair: Pair) -> None:
        """Raises `UserError` for the first state that another target has made."""
        here = PrefillMaker.of(pair)
        for file in self.files:
            file.maker.refuse_other(here, f"{str(file.path)!r}")

    def check(self, prompt: Sequence[int], layers: Sequence[int] = ()) -> StateFile:
        """The file of a prompt (ids) with the states of these layers. Raises `UserError` where there is none.

        It says where the nearest one parts, and which states are missing.
        """
        file = self._of.get(tuple(prompt[:-1]))
        if file is None:
            near = max(self.files, key=lambda known: alike(known.tokens, prompt))
            several = f"of {len(self.files)} states the nearest, " if len(self.files) > 1 else ""
            raise UserError(f"{several}{str(near.path)!r}: {other_text(near.tokens, prompt)}")
        if absent := sorted(set(layers) - file.layers):
            raise UserError(
                f"{str(file.path)!r} lacks the target's states of layers {', '.join(map(str, absent))}, from which "
                "these methods draft; expected `infer.py prefill` with --methods that names them, or without it"
            )
        return file

    def find(self, pair: Pair, prompt: Sequence[int], layers: Sequence[int]) -> Handover:
        """See `Prefills.find`."""
        state_file = self.check(prompt)
        begun = time.perf_counter()
        with _opened(state_file.path) as file:
            sums = _about(state_file.path, file.metadata() or {})[_SUMS]
            tensors = {name: _sound(state_file.path, file, name, sums) for name in file.keys()}  # noqa: SIM118
            state = unpacked(tensors, str(state_file.path))
        return Handover(state, state_file.prefill_s, transfer_s=time.perf_counter() - begun)


def _paths(place: Path) -> Iterable[Path]:
    if not place.is_dir():
        return (place,)
    paths = sorted(path for path in place.glob(f"*{SUFFIX}") if not path.name.startswith("."))
    if not paths:
        raise UserError(f"{str(place)!r} holds no prefilled state; expected files *{SUFFIX} of `infer.py prefill`")
    return paths


def _head(path: Path) -> StateFile:
    with _opened(path) as file:
        about = _about(path, file.metadata() or {})
        if set(file.keys()) != set(about[_SUMS]):
            raise _damaged(path, "the list of its tensors")
        tokens = tokens_in(_sound(path, file, TOKENS, about[_SUMS]), repr(str(path)))
        layers = layers_in(file.keys())
    seconds, prompt = seconds_in(about.get("prefill_s"), repr(str(path))), about.get("prompt")
    if not isinstance(prompt, str):
        raise UserError(f"{str(path)!r}: {wrong_value('prompt', prompt, 'a text')}")
    return StateFile(path, PrefillMaker.from_dict(about, repr(str(path))), tokens, layers, seconds, prompt)


def _about(path: Path, metadata: Mapping[str, str]) -> Mapping[str, Any]:
    """What a file says of itself. Raises `UserError` for what is no such file, is older or was changed."""
    if metadata.get("format") == _OLDER:
        raise UserError(
            f"{str(path)!r} is of an older version, which did not note the target's config and tokenizer, so that it "
            "cannot be compared with the target here; expected a new file of `infer.py prefill`"
        )
    about = read_json(metadata[_ABOUT]) if metadata.get("format") == _FORMAT and _ABOUT in metadata else None
    if not isinstance(about, dict) or not isinstance(about.get(_SUMS), dict):
        raise UserError(f"{str(path)!r} is no prefilled state; expected a file of `infer.py prefill`")
    if about.pop(_SUM, None) != _checksum(about):
        raise _damaged(path, "what it says of itself")
    return about


def _sound(path: Path, file: Any, name: str, sums: Mapping[str, Any]) -> Tensor:
    """A tensor of a file. Raises `UserError` where it is not the one that was written."""
    tensor: Tensor = file.get_tensor(name)
    if sums.get(name) != _checksum(tensor):
        raise _damaged(path, name)
    return tensor


def _damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{str(path)!r}: {what} does not have the checksum that was written with it: the file was changed or is "
        "damaged; expected a new file of `infer.py prefill`"
    )


def _checksum(part: Tensor | Mapping[str, Any]) -> str:
    """sha256 of a tensor's type, shape and bytes, or of plain values."""
    if not isinstance(part, Tensor):
        return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()
    total = hashlib.sha256(f"{part.dtype} {tuple(part.shape)} ".encode())
    total.update(part.contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of tensors. Raises `UserError` for one that cannot be read, and for a tensor that it lacks."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"{str(path)!r} cannot be read: {why}; expected a file of `infer.py prefill`") from None
