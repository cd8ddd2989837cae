"""A cache of fixed addresses: all layers in one zeroed buffer, and a length that lies on the device.

A forward over it has the same shapes and addresses whatever the length of the text, so that it can be captured. It
attends over all of a bucket of rows, of which a mask hides those that do not count; a hidden row must hold finite
numbers all the same, for 0 times NaN is NaN.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from weakref import finalize

import torch
from torch import Tensor

from sampling.forward.attention import grouped_attention
from sampling.forward.cache import Rows, SequenceCache
from sampling.forward.steps import BlockShape
from utils.graphed import Graphed, Tensors

ROOM = 2048
"""Rows that a cache begins with; it grows as a text does, and graphs, which know the old addresses, are made anew."""
BUCKET = 256
"""Rows that a forward attends over are a multiple of this, so that short texts do not pay for long ones."""


class FixedLayer:
    """One layer's rows, `[kv_heads, capacity, head_dim]` each."""

    def __init__(self, cache: "FixedCache", keys: Tensor, values: Tensor) -> None:
        self._cache, self._keys, self._values = cache, keys, values

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Store n rows where the step says, and attend from them over its columns: see `RollbackLayer.attend`."""
        cache = self._cache
        assert mask is not None, "rows of a fixed cache are told apart by a mask"
        self._keys.index_copy_(1, cache.slots, keys.transpose(0, 1))
        self._values.index_copy_(1, cache.slots, values.transpose(0, 1))
        columns = mask.shape[1]
        keys, values = self._keys[:, :columns].unsqueeze(0), self._values[:, :columns].unsqueeze(0)
        return grouped_attention(query, keys, values, mask)


class FixedCache(SequenceCache):
    """Keys and values of all layers, `[2, layers, kv_heads, capacity, head_dim]`.

    length: on the host; `length_there` `[1]` is the same number on the device. slots `[n]`: where the rows of the
    forward under way go, and columns, how many rows it attends over: set by whoever feeds.
    """

    def __init__(self, layers: int, shape: BlockShape, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype, self.capacity, self.columns = device, dtype, capacity, capacity
        self.buffer = torch.zeros(2, layers, shape.kv_heads, capacity, shape.head_dim, device=device, dtype=dtype)
        self.length_there = torch.zeros(1, dtype=torch.long, device=device)
        self.slots = torch.zeros(1, dtype=torch.long, device=device)
        self.layers = [FixedLayer(self, *self.buffer[:, layer]) for layer in range(layers)]

    def advance(self, rows: int) -> None:
        """See `SequenceCache.advance`."""
        super().advance(rows)
        self._send_length()

    def crop(self, length: int) -> None:
        """See `SequenceCache.crop`."""
        super().crop(length)
        self._send_length()

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        self.buffer[:, :, :, to : to + len(rows)] = self.buffer.index_select(3, rows)

    def rows(self) -> dict[int, Rows]:
        """See `KeptCache.rows`."""
        return {
            layer: (keys[:, : self.length], values[:, : self.length])
            for layer, (keys, values) in enumerate(zip(*self.buffer, strict=True))
        }

    @torch.inference_mode()
    def fill(self, rows: Mapping[int, Rows], count: int) -> None:
        """See `KeptCache.fill`; there is room for them."""
        self.crop(0)
        for layer, one in rows.items():
            for buffer, held in zip(self.buffer[:, layer], one, strict=True):
                buffer[:, :count] = held
        self.advance(count)

    def grown(self, capacity: int) -> "FixedCache":
        """Another one with more room and the same rows."""
        shape = BlockShape(0, self.buffer.shape[2], self.buffer.shape[4])
        larger = type(self)(self.buffer.shape[1], shape, capacity, self.device, self.dtype)
        larger.buffer[:, :, :, : self.length] = self.buffer[:, :, :, : self.length]
        larger.memory = self.memory
        larger.advance(self.length)
        return larger

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
class Place:
    """A cache with the graphs that know its addresses: what outlives a sequence."""

    cache: FixedCache
    steps: dict[Hashable, Graphed] = field(default_factory=dict)

    @property
    def capture_s(self) -> float:
        """Seconds that capturing took so far."""
        return sum(step.capture_s for step in self.steps.values())

    def step(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        """The function as a graph; key: what it was made for, beside the shapes of its inputs."""
        if key not in self.steps:
            self.steps[key] = Graphed(function, self.cache.buffer.device)
        return self.steps[key]

    def columns(self, width: int, most: int) -> int:
        """Columns of the next forward, which writes so many rows; there is room for them then, up to `most`."""
        rows, cache = self.cache.length + width, self.cache
        if rows > cache.capacity:
            self.cache = cache.grown(min(most, max(rows, 2 * cache.capacity)))
            self.steps.clear()
        return columns_for(rows, self.cache.capacity)


class Places:
    """The places of one model. A sequence takes one and gives it back when its runner is gone.

    layers, shape: of the model; most: rows that its longest text takes. kind: of its caches.
    """

    def __init__(
        self,
        layers: int,
        shape: BlockShape,
        most: int,
        device: torch.device,
        dtype: torch.dtype,
        kind: type[FixedCache] = FixedCache,
    ) -> None:
        self.most = most
        self._make = partial(kind, layers, shape, min(ROOM, most), device, dtype)
        self._free: list[Place] = []

    def take(self, owner: object) -> Place:
        """One that nobody has, empty, for as long as `owner` lives."""
        place = self._free.pop() if self._free else Place(self._make())
        place.cache.crop(0)
        finalize(owner, self._free.append, place)
        return place
