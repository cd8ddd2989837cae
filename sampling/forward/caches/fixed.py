"""A slot of fixed addresses, and a length that lies on the device.

A forward over it has the same shapes and addresses whatever the length of the text, so that it can be captured. It
attends over all of a bucket of rows, of which a mask hides those that do not count; a hidden row must hold finite
numbers all the same, for 0 times NaN is NaN.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from weakref import finalize

import torch
from torch import Tensor

from sampling.forward.caches.rows import RowsCache, RowsSlot
from utils.device.graphed import Graphed, Tensors

ROOM = 2048
"""Rows that a cache begins with; it grows as a text does, and graphs, which know the old addresses, are made anew."""
BUCKET = 256
"""Rows that a forward attends over are a multiple of this, so that short texts do not pay for long ones."""


class FixedSlot(RowsSlot):
    """A slot whose length lies on the device as well: `length_there` `[1]`."""

    def __init__(self, owner: RowsCache) -> None:
        super().__init__(owner)
        self.length_there = torch.zeros(1, dtype=torch.long, device=self.device)

    @property
    def capacity(self) -> int:
        """Rows that it has room for."""
        return self.owner.keys.shape[3]

    def advance(self, rows: int) -> None:
        """See `SequenceCache.advance`."""
        super().advance(rows)
        self._send_length()

    def crop(self, length: int) -> None:
        """See `SequenceCache.crop`."""
        super().crop(length)
        self._send_length()

    def lay_out_rows(self, rows: Tensor, mask: Tensor) -> None:
        """See `RowsCache.lay_out_fixed`."""
        self.owner.lay_out_fixed(self.index, rows, mask)

    @torch.inference_mode()
    def _send_length(self) -> None:
        self.length_there.fill_(self.length)


def columns_for(rows: int, capacity: int) -> int:
    """How many columns a forward attends over that writes up to so many rows: whole buckets."""
    return min(capacity, -(-rows // BUCKET) * BUCKET)


def seen_by(seen: Tensor, base: Tensor, columns: int) -> Tensor:
    """Which columns each of n fed rows sees, `[n, columns]` bool.

    base: `[1]`, rows that every one of them sees. seen: `[n, m]` bool, which of the m rows behind those.
    """
    place = torch.arange(columns, device=seen.device) - base
    own = seen.index_select(1, place.clamp(0, seen.shape[1] - 1))
    return (place < 0) | ((place < seen.shape[1]) & own)


@dataclass(slots=True)
class CacheSlot:
    """A slot of a cache of its own, with the graphs that know its addresses: what outlives a sequence.

    most: rows that its longest text takes.
    """

    cache: FixedSlot
    most: int
    steps: dict[Hashable, Graphed] = field(default_factory=dict)

    @property
    def capture_s(self) -> float:
        """Seconds that capturing took so far."""
        return sum(step.capture_s for step in self.steps.values())

    def step(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        """The function as a graph; key: what it was made for, beside the shapes of its inputs."""
        if key not in self.steps:
            self.steps[key] = Graphed(function, self.cache.device)
        return self.steps[key]

    def columns(self, width: int) -> int:
        """Columns of the next forward, which writes so many rows; there is room for them then."""
        rows, capacity = self.cache.length + width, self.cache.capacity
        if rows > capacity:
            self.cache.owner.make_room(min(self.most, max(rows, 2 * capacity, ROOM)))
            self.steps.clear()
        return columns_for(rows, self.cache.capacity)


class CachePool:
    """The cache slots of one model. A sequence takes one and gives it back when its runner is gone.

    make: an empty cache. most: rows that the longest text takes.
    """

    def __init__(self, make: Callable[[], RowsCache], most: int) -> None:
        self._make, self._most = make, most
        self._free: list[CacheSlot] = []

    def take(self, owner: object) -> CacheSlot:
        """One that nobody has, empty, for as long as `owner` lives."""
        slot = self._free.pop() if self._free else CacheSlot(FixedSlot(self._make()), self._most)
        slot.cache.crop(0)
        finalize(owner, self._free.append, slot)
        return slot
