"""Uniform numbers in [0, 1): what drafts, verdicts and tokens are drawn by."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, shake_128
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from utils.device.sent import moved

Purpose = Literal["draft", "coin", "token"]
"""A draft is drawn; a coin decides whether it is accepted; the target's own token is drawn."""


class CounterRNG:
    """The numbers of one text: each goes by seed, prompt, position, purpose, and how many were asked for it before.

    So they are the same whatever else the machine computes, on any device. No two purposes share a number: a draft and
    the coin that it is judged by would go together. position: of the first token of a round, which is never that of
    another, because every round brings a token.
    """

    def __init__(self, seed: int, prompt: Sequence[int] = ()) -> None:
        about = f"{seed} {len(prompt)} ".encode() + np.asarray(prompt, dtype="<i8").tobytes()
        self._key = blake2b(about, digest_size=32).digest()
        self.at(0)

    def at(self, position: int) -> None:
        """The numbers from here on are those of the round that begins at this position."""
        self._position, self._asked = position, dict[Purpose, int]()

    def within(self) -> "CounterRNG":
        """The numbers of a text that is drafted inside this round."""
        inner = CounterRNG(0)
        inner._key = self._bytes("inner", 32)
        return inner

    def uniform(self, shape: Sequence[int], dtype: torch.dtype, purpose: Purpose) -> Tensor:
        """The next ones for a purpose, on the CPU; as fine as the format's fraction."""
        return _numbers(self.raw(prod(shape), purpose), dtype).view(*shape)

    def raw(self, count: int, purpose: Purpose) -> bytes:
        """The next `count` ones for a purpose, 8 bytes each."""
        before = self._asked.get(purpose, 0)
        self._asked[purpose] = before + count
        return self._bytes(purpose, 8 * (before + count))[8 * before :]

    def _bytes(self, purpose: str, count: int) -> bytes:
        return shake_128(self._key + f"{self._position} {purpose}".encode()).digest(count)


def _numbers(raw: bytes, dtype: torch.dtype) -> Tensor:
    """Numbers `[n]` of 8 bytes each."""
    bits = 53 if dtype == torch.float64 else 24
    return torch.from_numpy((np.frombuffer(raw, dtype="<u8") >> np.uint64(64 - bits)) * 0.5**bits).to(dtype)


class RandomRequest(NamedTuple):
    """Shape, number format and purpose of what was asked for at once."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    purpose: Purpose


@dataclass(slots=True)
class RecordingRNG:
    """Where numbers come from, and what was asked of it in order."""

    source: "torch.Generator | CounterRNG"
    requests: list[RandomRequest] = field(default_factory=list)


class ReplayingRNG:
    """Numbers that were drawn before, handed out in the order in which a `RecordingRNG` was asked for them."""

    def __init__(self, numbers: Iterable[Tensor]) -> None:
        self._numbers: Iterator[Tensor] = iter(numbers)

    def take(self) -> Tensor:
        """The next ones."""
        return next(self._numbers)


Source = torch.Generator | CounterRNG
RNG = Source | RecordingRNG | ReplayingRNG


def uniform(
    shape: tuple[int, ...], coins: RNG | None, device: torch.device, dtype: torch.dtype, purpose: Purpose
) -> Tensor:
    """Uniform numbers of this shape. None: torch's own generator."""
    if isinstance(coins, ReplayingRNG):
        return coins.take()
    if isinstance(coins, RecordingRNG):
        coins.requests.append(RandomRequest(shape, dtype, purpose))
        coins = coins.source
    if isinstance(coins, CounterRNG):
        return moved(coins.uniform(shape, dtype, purpose), device)
    return torch.rand(shape, generator=coins, device=device, dtype=dtype)


def uniform_each(
    shapes: Sequence[tuple[int, ...]],
    rngs: Sequence[RNG | None],
    device: torch.device,
    dtype: torch.dtype,
    purpose: Purpose,
) -> Tensor:
    """Uniform numbers of several sequences, one behind the other; so many of each. They travel together."""
    if len(rngs) == 1:
        return uniform(shapes[0], rngs[0], device, dtype, purpose)
    if all(type(rng) is CounterRNG for rng in rngs):
        raw = b"".join(rng.raw(prod(shape), purpose) for shape, rng in zip(shapes, rngs, strict=True))  # type: ignore[union-attr]
        if raw:
            return moved(_numbers(raw, dtype).view(-1, *shapes[0][1:]), device)
    there, each = torch.device("cpu"), zip(shapes, rngs, strict=True)
    parts = [uniform(shape, rng, there, dtype, purpose) for shape, rng in each if shape[0]]
    return moved(torch.cat(parts), device) if parts else torch.empty(0, device=device, dtype=dtype)


def drawn(asked: Sequence[RandomRequest], source: Source) -> tuple[Tensor, ...]:
    """All of it at once, on the host: `[m]` in float64, and no tensor where nothing was asked for.

    The very numbers that asking one after the other would have brought, which float64 holds exactly.
    """
    here = torch.device("cpu")
    parts = [uniform(request.shape, source, here, request.dtype, request.purpose).flatten() for request in asked]
    return (torch.cat([part.double() for part in parts]),) if parts else ()


def replayed(asked: Sequence[RandomRequest], numbers: Sequence[Tensor]) -> ReplayingRNG:
    """Hands out what `drawn` gave, wherever that lies by now."""
    if not asked:
        return ReplayingRNG(())
    parts = numbers[0].split([prod(request.shape) for request in asked])
    return ReplayingRNG(part.to(request.dtype).view(request.shape) for part, request in zip(parts, asked, strict=True))
