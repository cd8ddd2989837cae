"""Uniform numbers in [0, 1): from a generator as they are asked for, or drawn before, so that a graph can use them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

Asked = tuple[tuple[int, ...], torch.dtype]
"""Shape and number format of what was asked for at once."""


@dataclass(slots=True)
class Noted:
    """A generator, and what was asked of it in order."""

    rng: torch.Generator
    asked: list[Asked] = field(default_factory=list)


class Drawn:
    """Numbers that were drawn before, handed out in the order in which a `Noted` was asked for them."""

    def __init__(self, numbers: Iterable[Tensor]) -> None:
        self._numbers: Iterator[Tensor] = iter(numbers)

    def take(self) -> Tensor:
        """The next ones."""
        return next(self._numbers)


Coins = torch.Generator | Noted | Drawn


def uniform(shape: tuple[int, ...], coins: Coins | None, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Uniform numbers of this shape. None: torch's own generator."""
    if isinstance(coins, Drawn):
        return coins.take()
    if isinstance(coins, Noted):
        coins.asked.append((shape, dtype))
        coins = coins.rng
    return torch.rand(shape, generator=coins, device=device, dtype=dtype)


def drawn(asked: Iterable[Asked], rng: torch.Generator, device: torch.device) -> list[Tensor]:
    """All of it at once, the very numbers that asking one after the other would have brought."""
    return [uniform(shape, rng, device, dtype) for shape, dtype in asked]
