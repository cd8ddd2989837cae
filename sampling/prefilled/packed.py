"""A prefilled state as tensors by name and a few words, which is how it is written and sent (safetensors, JSON)."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sampling.forward.state import State
from sampling.pair import Pair
from utils.errors import UserError, wrong_value

_NAME = re.compile(r"(keys|values|hidden)\.(0|[1-9]\d{0,4})")
_SHAPES = {"keys": 3, "values": 3, "hidden": 2}
TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Maker:
    """What reads prompts: a state is of use where all of this is the same.

    target: the model's name. digest: of its embedding and norms. weights: their format. dtype: of rows and states.
    """

    target: str
    digest: str
    weights: str
    dtype: str

    @classmethod
    def of(cls, pair: Pair) -> "Maker":
        """The target of a pair."""
        info = pair.target_info
        return cls(info.name, pair.digest, info.stored, info.dtype)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], where: str) -> "Maker":
        """As `as_dict` gives it. Raises `UserError`; where: what errors call it."""
        for name in cls.__slots__:
            if not isinstance(given.get(name), str):
                raise UserError(f"{where}: {wrong_value(name, given.get(name), 'a text')}")
        return cls(**{name: given[name] for name in cls.__slots__})

    def as_dict(self) -> dict[str, str]:
        """As plain values."""
        return asdict(self)

    def refuse_other(self, here: "Maker", what: str) -> None:
        """Raises `UserError` where what it read is not what a target here would have read. what: it read."""
        if self.digest != here.digest:
            raise UserError(f"{what} is of {self.target}, with other weights than the target here, {here.target}")
        for name, option in (("weights", "--target-weights"), ("dtype", "--dtype")):
            theirs, ours = getattr(self, name), getattr(here, name)
            if theirs != ours:
                raise UserError(
                    f"{what} is in {theirs}, and {here.target} is in {ours} here; expected {option} {theirs}"
                )


def packed(state: State) -> dict[str, Tensor]:
    """Its tensors by name, on the CPU."""
    found = {TOKENS: torch.tensor(state.tokens, dtype=torch.long)}
    for layer, (keys, values) in state.rows.items():
        found |= {f"keys.{layer}": keys, f"values.{layer}": values}
    found |= {f"hidden.{layer}": states for layer, states in state.hidden.items()}
    return {name: one.cpu().contiguous() for name, one in found.items()}


def unpacked(tensors: Mapping[str, Tensor], where: str) -> State:
    """The state of such tensors. Raises `UserError` for tensors that are none; where: what errors call them."""
    tokens = tensors.get(TOKENS)
    if tokens is None or tokens.dim() != 1 or tokens.dtype != torch.long:
        raise UserError(f"{where}: no {TOKENS} in it; expected a prefilled state")
    parts: dict[str, dict[int, Tensor]] = {kind: {} for kind in _SHAPES}
    for name, one in tensors.items():
        matched = _NAME.fullmatch(name)
        if matched is None:
            if name != TOKENS:
                raise UserError(f"{where}: it has a tensor {name!r}; expected a prefilled state")
            continue
        kind, layer = matched[1], int(matched[2])
        if one.dim() != _SHAPES[kind] or one.shape[-2] != len(tokens):
            raise UserError(f"{where}: {name} has the shape {tuple(one.shape)} and {len(tokens)} tokens were read")
        parts[kind][layer] = one
    if parts["keys"].keys() != parts["values"].keys():
        raise UserError(f"{where}: keys and values are not of the same layers")
    rows = {layer: (keys, parts["values"][layer]) for layer, keys in parts["keys"].items()}
    return State(tuple(tokens.tolist()), rows, parts["hidden"])
