"""A key/value cache that rolls back for nothing: preallocated buffers and a length.

Rows behind `length` are stale and overwritten by the next forward, so `crop` is an assignment. All layers lie in
one buffer, so that the accepted rows of a tree move in one gather. The cache also says where fed tokens stand and
what they see, on the device it lives on: it alone knows its rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol
from weakref import proxy

import torch
from torch import Tensor

from sampling.forward.kernels.attention import attend_on
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.tree import is_chain, seen_in_tree
from utils.device.sent import sent

_GROWTH = 512

Rows = tuple[Tensor, Tensor]
"""Keys and values of one layer and one sequence, `[kv_heads, n, head_dim]` each."""


@dataclass(frozen=True)
class _Buffers:
    """Stacks of keys and of values, `[layers, 1, kv_heads, capacity, head_dim]`, and each layer's place in one.

    One stack holds all layers of the first one's shape; a layer of another shape has a stack of its own. known: the
    layers whose shape was seen.
    """

    stacks: tuple[tuple[Tensor, Tensor], ...]
    places: tuple[tuple[int, int], ...]
    capacity: int
    known: set[int] = field(default_factory=set)

    @cached_property
    def layers(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Keys and values of each layer, `[1, kv_heads, capacity, head_dim]`."""
        return tuple((self.stacks[stack][0][row], self.stacks[stack][1][row]) for stack, row in self.places)

    def own(self, index: int, keys: Tensor, values: Tensor) -> "_Buffers":
        """The same, with a stack for one layer whose rows have another shape."""
        places = list(self.places)
        places[index] = len(self.stacks), 0
        alone = _stack(1, keys, self.capacity), _stack(1, values, self.capacity)
        return replace(self, stacks=(*self.stacks, alone), places=tuple(places))

    def grown(self, rows: int, capacity: int) -> "_Buffers":
        """The same first `rows` rows with more room behind them."""
        stacks = ((_copied(keys, rows, capacity), _copied(values, rows, capacity)) for keys, values in self.stacks)
        return replace(self, stacks=tuple(stacks), capacity=capacity)


def _stack(layers: int, like: Tensor, capacity: int) -> Tensor:
    return like.new_zeros(layers, like.shape[0], like.shape[1], capacity, like.shape[3])


def _copied(old: Tensor, rows: int, capacity: int) -> Tensor:
    new = old.new_zeros(*old.shape[:3], capacity, old.shape[4])
    new[:, :, :, :rows] = old[:, :, :, :rows]
    return new


class RollbackLayer:
    """One layer's part of a cache."""

    def __init__(self, cache: "RollbackCache", index: int) -> None:
        self._cache: RollbackCache = proxy(cache)  # which owns its layers: memory is free at once where it goes
        self._index = index

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store n rows `[1, kv_heads, n, head_dim]` behind the committed ones; return all rows so far."""
        start, stop = self._cache.length, self._cache.length + keys.shape[2]
        all_keys, all_values = self._cache.room(self._index, keys, values, stop)
        all_keys[:, :, start:stop] = keys
        all_values[:, :, start:stop] = values
        return all_keys[:, :, :stop], all_values[:, :, :stop]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Masks | None, scores: Scores) -> Tensor:
        """Store the rows and attend from them: `[n, heads, D]` on `[n, kv_heads, D]` -> `[n, heads * D]`.

        mask: `[group * n, L]`, the rows of a group's heads below each other.
        """
        keys, values = self.write(keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0))
        return attend_on(query, keys, values, keys.shape[2], mask, None, scores)

    def destination(self) -> None:
        """See `StepRows.destination`: where they go is known when they are written."""

    def attend_stored(self, query: Tensor, scores: Scores) -> Tensor:
        """Not called: see `destination`."""
        raise NotImplementedError


def refuse_crop(held: int, length: int) -> None:
    """Raise `ValueError` where of `held` rows not so many can be kept."""
    if not 0 <= length <= held:
        raise ValueError(f"cannot crop {held} rows to {length}")


def refuse_fewer(rows: Rows, needed: int) -> None:
    """Raise `ValueError` where fewer rows of a layer are given than a text goes on from."""
    given = rows[0].shape[1]
    if given < needed:
        raise ValueError(f"{given} rows are given of a layer that goes on from {needed}")


class SequenceCache(ABC):
    """The rows of one sequence, of which the first `length` count.

    A forward writes behind `length` in every layer; `advance` then makes those rows count. Nothing else
    moves `length` forward, so a forward that is interrupted half-way leaves the cache as it was. `memory` is
    what an encoder left for the decoder: it belongs to the sequence as its rows do. rollback_s, reread: the seconds
    that taking tokens back took so far, and how many tokens were read again for it; 0 where a crop is all.
    """

    device: torch.device
    dtype: torch.dtype
    length: int = 0
    memory: Any = None
    rollback_s: float = 0.0
    reread: int = 0

    @property
    def storage(self) -> Any:
        """The cache that a model's forward writes to: this one, or that of many sequences of which it is a part."""
        return self

    @abstractmethod
    def move(self, rows: Tensor, to: int) -> None:
        """Copy `rows` `[m]` to the row `to` and those behind it, in all layers."""

    def advance(self, rows: int) -> None:
        """Count `rows` more rows: the ones that a forward has just written."""
        self.length += rows

    def crop(self, length: int) -> None:
        """Forget the rows from `length` on; O(1). Raises `ValueError` for more rows than there are."""
        refuse_crop(self.length, length)
        self.length = length

    def keep(self, base: int, path: Sequence[int]) -> None:
        """Of the rows written from `base` on, keep row `base` and the accepted drafts.

        Draft i sits in row base + 1 + i. A path (0, 1, ..., m - 1), which is all a chain can have, is a
        crop; any other is compacted. Example: base 10, path (1, 4) -> row 12 moves to 11, row 15 to 12,
        length 13.
        """
        if not is_chain(path):
            with torch.inference_mode():
                self.move(sent(path, self.device) + base + 1, base + 1)
        self.crop(base + 1 + len(path))

    def positions(self, count: int, parents: Sequence[int] | None = None) -> Tensor:
        """Where n tokens stand that are fed next, `[n]`: the root behind the committed rows, a draft at its depth."""
        return positions(self.length, count, parents, self.device)

    def mask(self, count: int, parents: Sequence[int] | None = None) -> Tensor | None:
        """What they see, additive, `[n, length + n]`: all committed rows, and among the new ones the ancestors."""
        return None if count == 1 else self.additive(seen(self.length, count, parents, self.device))

    def additive(self, seen: Tensor) -> Tensor:
        """See `additive`."""
        return additive(seen, self.dtype)

    def lay_out(self, count: int, parents: Sequence[int] | None = None) -> tuple[Tensor, Tensor | None]:
        """Prepare the next forward: `positions` and `mask`, which is None where the layers know it without."""
        return self.positions(count, parents), self.mask(count, parents)

    def lay_out_seen(self, positions: Tensor, seen: Tensor, shared: int | None = None) -> Tensor | None:
        """The same for n tokens that stand anywhere and see any rows, `[n, length + n]` bool: their mask.

        shared: rows that all of them see, the first of all.
        """
        return self.additive(seen)


class KeptCache(Protocol):
    """A cache whose rows can be taken out and put into another."""

    def rows(self) -> dict[int, Rows]:
        """What the layers hold that count, of each that was ever written: views, good until the next forward."""
        ...

    def fill(self, rows: Mapping[int, Rows], count: int) -> None:
        """Hold copies of these `count` rows of each layer, and no others."""
        ...


class RollbackCache(SequenceCache):
    """The layers of one sequence, in buffers that grow with it."""

    def __init__(self, num_layers: int, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.layers = [RollbackLayer(self, index) for index in range(num_layers)]
        self._buffers: _Buffers | None = None

    def room(self, index: int, keys: Tensor, values: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """The buffers of a layer, `[1, kv_heads, capacity, head_dim]`, with room for `rows` rows of this shape."""
        buffers = self._buffers
        if buffers is None or rows > buffers.capacity or index not in buffers.known:
            buffers = self._buffers = self._made_room(self._buffers, index, keys, values, rows)
        return buffers.layers[index]

    def _made_room(self, buffers: _Buffers | None, index: int, keys: Tensor, values: Tensor, rows: int) -> _Buffers:
        if buffers is None:
            capacity = -(-rows // _GROWTH) * _GROWTH
            stacks = _stack(len(self.layers), keys, capacity), _stack(len(self.layers), values, capacity)
            buffers = _Buffers((stacks,), tuple((0, row) for row in range(len(self.layers))), capacity)
        if rows > buffers.capacity:
            buffers = buffers.grown(self.length, -(-max(rows, buffers.capacity * 3 // 2) // _GROWTH) * _GROWTH)
        mine = buffers.layers[index]
        if any(stored.shape[1::2] != new.shape[1::2] for stored, new in zip(mine, (keys, values), strict=True)):
            buffers = buffers.own(index, keys, values)
        buffers.known.add(index)
        return buffers

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        stop = to + rows.shape[0]
        for stack in (buffer for pair in self._buffers.stacks for buffer in pair) if self._buffers else ():
            stack[:, :, :, to:stop] = stack.index_select(3, rows)

    def rows(self) -> dict[int, Rows]:
        """See `KeptCache.rows`."""
        if (buffers := self._buffers) is None:
            return {}
        return {
            index: (keys[0, :, : self.length], values[0, :, : self.length])
            for index, (keys, values) in enumerate(buffers.layers)
            if index in buffers.known
        }

    def fill(self, rows: Mapping[int, Rows], count: int) -> None:
        """See `KeptCache.fill`."""
        self.crop(0)
        for index, (keys, values) in rows.items():
            refuse_fewer((keys, values), count)
            all_keys, all_values = self.room(index, keys.unsqueeze(0), values.unsqueeze(0), count)
            all_keys[0, :, :count] = keys
            all_values[0, :, :count] = values
        self.advance(count)


def row_shapes(rows: Mapping[int, Rows]) -> set[tuple[int, int]]:
    """(kv_heads, head_dim) of keys and values of all layers."""
    return {(part.shape[0], part.shape[2]) for layer in rows.values() for part in layer}


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of booleans as what is added to scores."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)


def positions(length: int, count: int, parents: Sequence[int] | None, device: torch.device) -> Tensor:
    """See `SequenceCache.positions`, behind `length` rows."""
    if parents is None:
        return torch.arange(length, length + count, device=device)
    return seen_in_tree(parents, device).sum(1) + (length - 1)


def seen(length: int, count: int, parents: Sequence[int] | None, device: torch.device) -> Tensor:
    """Which rows each of n fed tokens sees, `[n, length + n]` bool: see `SequenceCache.mask`."""
    rows = torch.ones(count, length + count, dtype=torch.bool, device=device)
    if parents is None:
        return rows.tril(length)
    rows[:, length:] = seen_in_tree(parents, device)
    return rows


def seen_by_branches(length: int, base: int, lines: Tensor) -> Tensor:
    """Which rows n tokens see that go on side by side, `[n, length + n]` bool on the CPU: see `Runner.fork`."""
    count = len(lines)
    rows_there = torch.arange(length, length + count)
    rows = torch.zeros(count, length + count, dtype=torch.bool)
    rows[:, :base] = True
    return rows.scatter_(1, torch.cat([lines, rows_there.unsqueeze(1)], dim=1), True)
