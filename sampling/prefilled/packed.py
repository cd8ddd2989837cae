"""A prefilled state as tensors by name and a few words, which is how it is written and sent (safetensors, JSON)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sampling.forward.kernels.formats import FULL
from sampling.forward.state import State
from sampling.pair.pair import Pair
from utils.errors import UserError, wrong_value
from utils.provenance import config_digest, weights_digest

_NAME = re.compile(r"(keys|values|hidden)\.(0|[1-9]\d{0,4})")
_SHAPES = {"keys": 3, "values": 3, "hidden": 2}
TOKENS = "tokens"
MOST_SECONDS = 30 * 24 * 3600.0
"""No prompt takes longer to be read."""


@dataclass(frozen=True, slots=True)
class PrefillMaker:
    """What reads prompts: a state is of use where all of this is the same.

    target: the model's name. digest: of its weights, as far as they are known by: all in the files that they came from,
    else embedding and norms. config: of its config, tokenizer and generation defaults; empty where they are of no
    files. weights: their format. dtype: of rows and states.
    """

    target: str
    digest: str
    config: str
    weights: str
    dtype: str

    @classmethod
    def of(cls, pair: Pair) -> "PrefillMaker":
        """The target of a pair."""
        info = pair.target_info
        digest = (_of_files(info.place) if info.place else None) or pair.digest
        config = (config_digest(info.place) if info.place else None) or ""
        return cls(info.name, digest, config, info.stored, info.dtype)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: str) -> "PrefillMaker":
        """As `as_dict` gives it. Raises `UserError`; where: what errors call it."""
        for name in cls.__slots__:
            if not isinstance(content.get(name), str):
                raise UserError(f"{where}: {wrong_value(name, content.get(name), 'a text')}")
        return cls(**{name: content[name] for name in cls.__slots__})

    def as_dict(self) -> dict[str, str]:
        """As plain values."""
        return asdict(self)

    @property
    def text(self) -> str:
        """For people: `SmolLM2 in float32`."""
        format = "" if self.weights == FULL else f"{self.weights} and "
        return f"{self.target} in {format}{self.dtype}"

    def fits(self, other: "PrefillMaker") -> bool:
        """Whether one goes on from what the other has read, whatever they are called."""
        return replace(self, target=other.target) == other

    def refuse_other(self, here: "PrefillMaker", what: str) -> None:
        """Raises `UserError` where what it read is not what a target here would have read. what: it read."""
        if self.digest != here.digest:
            raise UserError(f"{what} is of {self.target}, with other weights than the target here, {here.target}")
        if self.config != here.config:
            raise UserError(
                f"{what} is of {self.target}, with the weights of {here.target} here and another config, tokenizer or "
                "generation defaults: another model"
            )
        for name, option in (("weights", "--target-weights"), ("dtype", "--dtype")):
            theirs, ours = getattr(self, name), getattr(here, name)
            if theirs != ours:
                raise UserError(
                    f"{what} is in {theirs}, and {here.target} is in {ours} here; expected {option} {theirs}"
                )


@lru_cache(maxsize=8)
def _of_files(place: str) -> str | None:
    """Read once in a process: files of gigabytes take seconds."""
    return weights_digest(place)


def packed(state: State) -> dict[str, Tensor]:
    """Its tensors by name, on the CPU."""
    tensors = {TOKENS: torch.tensor(state.tokens, dtype=torch.long)}
    for layer, (keys, values) in state.rows.items():
        tensors |= {f"keys.{layer}": keys, f"values.{layer}": values}
    tensors |= {f"hidden.{layer}": states for layer, states in state.hidden.items()}
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def layers_in(names: Iterable[str]) -> frozenset[int]:
    """The layers of which tensors of these names are states."""
    return frozenset(int(match[2]) for match in map(_NAME.fullmatch, names) if match and match[1] == "hidden")


def unpacked(tensors: Mapping[str, Tensor], where: str) -> State:
    """The state of such tensors. Raises `UserError` for tensors that are none; where: what errors call them."""
    tokens = tokens_in(tensors.get(TOKENS), where)
    parts: dict[str, dict[int, Tensor]] = {kind: {} for kind in _SHAPES}
    for name, tensor in tensors.items():
        matched = _NAME.fullmatch(name)
        if matched is None:
            if name != TOKENS:
                raise UserError(f"{where}: it has a tensor {name!r}; expected a prefilled state")
            continue
        kind, layer = matched[1], int(matched[2])
        fits = tensor.dim() == _SHAPES[kind]
        if not fits or tensor.shape[-2] > len(tokens) or (kind == "hidden" and tensor.shape[-2] < len(tokens)):
            raise UserError(f"{where}: {name} has the shape {tuple(tensor.shape)} and {len(tokens)} tokens were read")
        parts[kind][layer] = tensor
    if parts["keys"].keys() != parts["values"].keys():
        raise UserError(f"{where}: keys and values are not of the same layers")
    rows = {layer: (keys, parts["values"][layer]) for layer, keys in parts["keys"].items()}
    return State(tokens, rows, parts["hidden"])


def tokens_in(tensor: Tensor | None, where: str) -> tuple[int, ...]:
    """The ids of a state. Raises `UserError` for what are none."""
    if tensor is None or tensor.dim() != 1 or tensor.dtype != torch.long:
        raise UserError(f"{where}: no {TOKENS} in it, or none that are ids; expected a prefilled state")
    return tuple(tensor.tolist())


def seconds_in(value: Any, where: str, most: float = MOST_SECONDS) -> float:
    """How long a prompt took to read, by whom has read it. Raises `UserError` for what nobody can have taken."""
    if type(value) not in (int, float) or not 0.0 <= value <= most:
        raise UserError(f"{where}: {wrong_value('prefill_s', value, 'seconds that reading a prompt can take')}")
    return float(value)
