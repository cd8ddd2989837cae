"""A slot of fixed addresses, and a length that lies on the device.

A forward over it has the same shapes and addresses whatever the length of the text, so that it can be captured. Where
our own kernel attends, it reads the length on the device. Elsewhere the forward attends over all of a bucket of rows,
of which a mask hides those that do not count; a hidden row must hold finite numbers all the same, for 0 times NaN is
NaN.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from weakref import finalize

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from utils.device.graph_pool import GraphPool, Tensors
from utils.device.graphed import Graphed
from utils.device.spare import CACHES, with_room

ROOM = 2048
"""Rows that a cache begins with; it grows as a text does, and graphs, which know the old addresses, are made anew."""
BUCKET = 256
"""Rows that a forward attends over at the least; see `bucket`."""


class FixedSlot(RowsSlot):
    """A slot whose length lies on the device as well: `length_there` `[1]`. most: rows that its longest text takes.

    Captured forwards count there what they feed. So it is sent only where the text goes on from elsewhere.
    """

    def __init__(self, owner: RowsCache, most: int) -> None:
        super().__init__(owner)
        self._most = most
        self.length_there = torch.zeros(1, dtype=torch.long, device=self.device)
        self._known_there: int | None = 0

    def send_length(self) -> None:
        """Before captured forwards: the device has the length that the host has. What it counts then is not known."""
        if self._known_there != self.length:
            self.length_there.fill_(self.length)
        self._known_there = None

    def counted(self, rows: int) -> None:
        """After captured forwards: they counted so many rows on the device."""
        self._known_there = self.length + rows

    def columns(self, count: int, read: int | None = None, shared: int | None = None) -> int:
        """Columns of the next forward, which writes so many rows: see `columns_over`. There is room for them then.

        read: how many of the rows have to see themselves; the others fill up, and nobody reads them (default: all).
        shared: see `QueryRows`.
        """
        columns = bucket(self.length + (read or count), self._most)
        grow(self.owner, max(columns, self.length + count), self._most, ROOM)
        self.owner.let_go(QueryRows(self, count, shared=shared))
        return columns_over(self.owner, columns)

    def lay_out(self, count: int, parents: Sequence[int] | None = None) -> tuple[Tensor, None]:
        """See `SequenceCache.lay_out`."""
        positions = self.positions(count, parents)
        self.lay_out_seen(positions, cache.seen(self.length, count, parents, self.device))
        return positions, None

    def lay_out_seen(self, positions: Tensor, seen: Tensor, shared: int | None = None) -> None:
        """See `SequenceCache.lay_out_seen`."""
        count, stop = len(positions), self.length + len(positions)
        self.columns(count, shared=shared)
        columns = bucket(stop, self._most)
        rows = torch.arange(self.length, stop, device=self.device)
        self.owner.lay_out_fixed(self.index, rows, self.additive(F.pad(seen, (0, columns - stop))))

    def fill(self, rows: Mapping[int, cache.Rows], count: int) -> None:
        """See `KeptCache.fill`."""
        self.crop(0)
        self.columns(count)
        super().fill(rows, count)


def bucket(rows: int, most: int) -> int:
    """Columns of a forward that attends over so many rows: 256, 512, 1024 and so on, or all of the longest text.

    Short texts do not pay for long ones, and a long one meets few numbers of columns, each with graphs of its own.
    """
    return min(max(BUCKET, 1 << (rows - 1).bit_length()), _whole(most))


def _whole(rows: int) -> int:
    return -(-rows // BUCKET) * BUCKET


def columns_over(owner: RowsCache, columns: int) -> int:
    """Columns of a captured forward: those of its bucket, or all where it reads no others than it sees."""
    return owner.keys.shape[3] if owner.split_keys else columns


def grow(owner: RowsCache, rows: int, most: int, least: int = 0) -> None:
    """Room for so many rows of a sequence, twice of what there was where that is too little: graphs are rarely lost."""
    capacity = owner.keys.shape[3]
    if rows > capacity:
        rows = max(rows, min(_whole(most), max(2 * capacity, least)))
    with_room(partial(owner.make_room, max(rows, capacity)))


def seen_by(seen: Tensor, base: Tensor, columns: int) -> Tensor:
    """Which columns each of n fed rows sees, `[n, columns]` bool.

    base: `[1]`, rows that every one of them sees. seen: `[n, m]` bool, which of the m rows behind those.
    """
    place = torch.arange(columns, device=seen.device) - base
    rows_seen = seen.index_select(1, place.clamp(0, seen.shape[1] - 1))
    return (place < 0) | ((place < seen.shape[1]) & rows_seen)


def lay_out_captured(owner: RowsCache, index: int, rows: Tensor, base: Tensor, seen: Tensor, columns: int) -> None:
    """Prepare a captured forward of one sequence whose rows `[n]` go there; base, seen, columns: see `seen_by`."""
    if owner.split_keys:
        owner.lay_out_split(index, rows, base, seen)
    else:
        owner.lay_out_fixed(index, rows, cache.additive(seen_by(seen, base, columns), owner.keys.dtype))


@dataclass(slots=True)
class CapturedSteps:
    """Functions captured over a cache, in one pool. When it grows they are forgotten: they know its old addresses.

    known: what calls of these functions have to know before, by what they were made for; it outlives them.
    """

    cache: RowsCache
    steps: dict[Hashable, Graphed] = field(default_factory=dict)
    pool: GraphPool = field(default_factory=GraphPool)
    addresses: tuple[int, ...] = ()
    known: dict[Hashable, Any] = field(default_factory=dict)

    def step(
        self, key: Hashable, function: Callable[..., Tensors], changes: Tensors = (), copies: bool = False
    ) -> Graphed:
        """The function as a graph; key: what it was made for, beside its inputs. changes, copies: see `Graphed`."""
        if (addresses := self.cache.addresses) != self.addresses:
            self.steps.clear()
            self.pool.drop()
            self.addresses = addresses
        if key not in self.steps:
            self.steps[key] = Graphed(function, self.cache.device, self.pool, changes, copies)
        return self.steps[key]

    @property
    def shapes(self) -> int:
        """How many are captured, or called where nothing is."""
        return len(self.pool)

    @property
    def reasons(self) -> list[str]:
        """Why some could not be captured."""
        return [step.reason for step in self.steps.values() if step.reason]


class PooledSlot(NamedTuple):
    """A slot of a cache of its own, with what was captured over it: what outlives a sequence."""

    cache: FixedSlot
    captured: CapturedSteps


class CachePool:
    """The cache slots of one model. A sequence takes one and gives it back when its runner is gone.

    make: an empty cache. most: rows that the longest text takes.
    """

    def __init__(self, make: Callable[[], RowsCache], most: int) -> None:
        self._make, self._most = make, most
        self._free: list[PooledSlot] = []
        CACHES.add(self)

    def take(self, owner: object) -> PooledSlot:
        """One that nobody has, empty, for as long as `owner` lives."""
        slot = self._free.pop() if self._free else self._made()
        slot.cache.crop(0)
        finalize(owner, self._free.append, slot)
        return slot

    def drop(self) -> None:
        """See `Spare.drop`: caches that nobody has."""
        self._free.clear()

    def _made(self) -> PooledSlot:
        storage = self._make()
        return PooledSlot(FixedSlot(storage, self._most), CapturedSteps(storage))
