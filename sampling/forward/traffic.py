"""What a target's forwards have to read from memory at the least, and what the memory gives: the roofline of decoding.

At batch 1 a forward reads every weight once and the keys and values of the text; how fast that goes is a bound for
plain decoding that no kernel passes, and the honest measure of how good a baseline is.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sampling.forward.causal_model import CausalModel
from sampling.forward.models.lean import LeanModel
from utils.errors import UserError

_BYTES, _TURNS = 1 << 28, 5
_QUEUED = 16  # copies in a turn on a GPU, beside which starting one and waiting for it take no time
_SCALE_BYTES = 4  # an int8 product's scale of an output


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a forward reads. weights: whatever it feeds. cached: for each token of the text before it."""

    weights: int
    cached: int

    @classmethod
    def of(cls, model: CausalModel) -> "Traffic | None":
        """Those of a model with a lean forward; of others they are not known, nor of experts, which tokens choose."""
        if not isinstance(model, LeanModel) or any(layer.experts for layer in model.layers):
            return None
        shape = model.blocks.shape
        token = 2 * model.num_layers * shape.kv_heads * shape.head_dim * model.embedding.element_size()
        return cls(held_bytes([model.head, *_products(model)]), token)

    def a_token(self, prompt_tokens: int, emitted: Sequence[int]) -> float | None:
        """Bytes a generated token, of rounds that emitted so many tokens behind such a prompt; None without a token.

        Example: 100 bytes of weights, 1 a cached token, rounds of 2 and 1 tokens behind 10: (110 + 112) / 3 = 74.
        """
        if not (tokens := sum(emitted)):
            return None
        texts = list(accumulate(emitted, initial=prompt_tokens))[:-1]
        return (self.weights * len(emitted) + self.cached * sum(texts)) / tokens


@lru_cache(maxsize=8)
def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second that this device's memory gives to a copy, what is read and what is written; measured once.

    The best of five turns: a copy of 256 MiB on a CPU, about a fifth of a second in all, and more of them on a GPU.
    """
    copies = 1 if device.type == "cpu" else _QUEUED
    source = torch.ones(_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    best = float("inf")
    for _ in range(_TURNS):
        _settle(device)
        began = time.perf_counter()
        for _ in range(copies):
            target.copy_(source)
        _settle(device)
        best = min(best, time.perf_counter() - began)
    return 2 * _BYTES * copies / best


def _settle(device: torch.device) -> None:
    """Wait until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def weight_bytes(model: CausalModel) -> int:
    """Bytes of the weights that a lean model's products and its embedding hold, scales, steps and biases included.

    What a product shares with the embedding counts once. A packed or rounded copy of a tied output matrix is memory of
    its own and counts. Norms, the rotary table and the cache do not. Raises `UserError` for other models.
    """
    if not isinstance(model, LeanModel):
        raise UserError("bytes of weights are known of models with a lean forward only (docs/models.md)")
    return held_bytes([model.embedding, model.head, *_products(model)])


def held_bytes(parts: Iterable[Any]) -> int:
    """Bytes of all tensors in layers and tensors; what several share counts once."""
    return sum({key: size for part in parts for key, size in _held(part)}.values())


def _held(part: Any) -> Iterator[tuple[object, int]]:
    """(what tells it from others, bytes) of each tensor in a layer."""
    if isinstance(part, torch.ScriptObject):  # an int8 weight in its packed layout
        weight, _ = torch.ops.quantized.linear_unpack(part)
        yield id(part), weight.nbytes + _SCALE_BYTES * len(weight)
    elif isinstance(part, Tensor):
        opaque = part.layout != torch.strided  # a packed weight has no storage that could be shared
        yield id(part) if opaque else part.data_ptr(), part.numel() * part.element_size()
    elif isinstance(part, tuple):
        for inner in part:
            yield from _held(inner)
    else:
        for inner in vars(part).values() if hasattr(part, "__dict__") else ():
            yield from _held(inner)


def _products(model: LeanModel) -> list[Any]:
    return [part for layer in model.layers for part in (*layer.products().values(), layer.experts)]
