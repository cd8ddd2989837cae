"""Keys and values of many sequences side by side, each in its own part of a buffer, with a length of its own.

A forward over several of them takes their rows one behind the other: no matrix product of the model is ever padded.
Only to attend are rows laid out by sequence. Rolling one back is an assignment, and no other is touched.
"""

from collections.abc import Mapping, Sequence
from weakref import finalize

import torch
from torch import Tensor

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import (
    Attending,
    AttentionMetadata,
    PaddedAttention,
    QueryRows,
    visible,
)
from sampling.forward.caches.growth import UsedRows
from sampling.forward.caches.rows_alone import AloneLayout, Buffers, FixedLayout, SingleLayout
from sampling.forward.caches.rows_layer import RowsLayer
from sampling.forward.caches.torch_attention import TorchAttention
from sampling.forward.cpp.kernel import varlen_kernel
from sampling.forward.cpp.varlen import VarlenAttention
from sampling.forward.kernels.attention import folded_mask
from sampling.forward.kernels.batch_invariant import AttentionPattern, columns_for
from sampling.forward.kernels.scores import Masks
from sampling.forward.models.steps import BlockShape
from sampling.forward.triton.attention import SplitKeys
from sampling.forward.triton.checked import splits_keys
from utils.device.sent import sent

_ROOM = 512


class RowsCache:
    """Keys and values of as many sequences as ask for a place, `[layers, B, kv_heads, capacity, head_dim]`.

    It grows with them and with their texts; only rows that were fed are copied then. It is zeroed: a number that is
    none, once there, would spread from rows that are hidden (0 times NaN is NaN). batch_invariant: see `Format`; every
    sequence then attends by itself, as it does alone. padded: all attend side by side, as a model's own layers must
    have it. split_keys: captured forwards attend by our own kernel (see `SplitKeys`). varlen: what others attend by, on
    a CPU that can have it: none is padded then, and all are batch-invariant.
    """

    layout: AttentionMetadata | AloneLayout
    in_blocks = False

    def __init__(
        self,
        layers: int,
        shape: BlockShape,
        device: torch.device,
        dtype: torch.dtype,
        batch_invariant: bool = False,
        padded: bool = False,
    ) -> None:
        self._group, self._batch_invariant, self._padded = shape.heads // shape.kv_heads or 1, batch_invariant, padded
        self.varlen = None if padded else varlen_kernel(device, dtype, shape)
        self._torch = TorchAttention(self._group, dtype, device, batch_invariant, padded)
        self.keys = self.values = torch.zeros(layers, 0, shape.kv_heads, 0, shape.head_dim, device=device, dtype=dtype)
        self.layers = [RowsLayer(self, index) for index in range(layers)]
        self.split_keys = not (batch_invariant or padded) and splits_keys(device, dtype, shape)
        self._buffers: dict[int, Buffers] = {}
        self._free: list[int] = []
        self._used, self.taken = UsedRows(), 0

    @property
    def device(self) -> torch.device:
        return self.keys.device

    def take(self, owner: object) -> int:
        """A place that nobody has, the lowest, for as long as `owner` lives."""
        index = self._lowest_free()
        self.wipe(index)
        finalize(owner, self._free.append, index)
        return index

    def _lowest_free(self) -> int:
        if not self._free:
            self._free.append(self.taken)
            self.taken += 1
        index = min(self._free)
        self._free.remove(index)
        return index

    @torch.inference_mode()
    def wipe(self, index: int) -> None:
        """Zero a sequence's rows."""
        if index < self.keys.shape[1]:
            self.keys[:, index] = self.values[:, index] = 0.0

    def lay_out(self, feeds: Sequence[QueryRows]) -> Tensor:
        """Prepare the next forward, and make room for it; the positions `[N]` of the flat rows."""
        self.make_room_for(feeds)
        if len(feeds) == 1 and not self._padded:
            return self._lay_out_alone(feeds[0])
        starts = [feed.start for feed in feeds]
        rows = [start + row for start, feed in zip(starts, feeds, strict=True) for row in range(feed.count)]
        where = [number for number, feed in zip(self.numbers(feeds), feeds, strict=True) for _ in range(feed.count)]
        flat = sent([*rows, *where], self.device)
        places, of = flat[: len(rows)], flat[len(rows) :]
        table = self.table_of(feeds)
        self.layout = AttentionMetadata(self.stored(of, places, table), self._attending(feeds, table), places, table)
        return self._positions(feeds, places)

    def lay_out_writes(self, feed: QueryRows) -> Tensor:
        """`lay_out` for rows of one sequence that are stored and attend to nothing."""
        self.make_room_for([feed])
        return self._lay_out_alone(feed, attends=False)

    def _lay_out_alone(self, feed: QueryRows, attends: bool = True) -> Tensor:
        """`lay_out` for one sequence."""
        start, stop = feed.start, feed.start + feed.count
        mask, sees = self._sees(feed) if attends else (None, None)
        places = torch.arange(start, stop, device=self.device)
        self.layout = SingleLayout(self.buffers(feed.slot.index), start, stop, mask, sees, places)
        return places if feed.positions is None else feed.positions

    def lay_out_fixed(self, index: int, rows: Tensor, mask: Tensor) -> None:
        """Prepare a forward of one sequence whose rows `[n]` go there and see `[n, columns]` by an additive mask.

        There is room for them: nothing is read, and no address changes.
        """
        self.layout = FixedLayout(self.buffers(index), rows, mask.shape[1], Masks(folded_mask(mask, self._group)))

    def lay_out_split(self, index: int, rows: Tensor, base: Tensor, seen: Tensor) -> None:
        """The same, where they see `base` `[1]` rows and those of the m behind that `seen` `[n, m]` bool says."""
        sees = SplitKeys.of(base, seen.unsqueeze(0))
        self.layout = FixedLayout(self.buffers(index), rows, self.keys.shape[3], None, sees)

    def lay_out_side(self, of: Tensor, rows: Tensor, at: Tensor, base: Tensor, seen: Tensor, columns: int) -> None:
        """The same for many sequences side by side, the first of all.

        of, rows: `[N]`, whose each flat row is and where it goes there. at: `[N]`, where it lies among `sequences x
        rows`. base: `[sequences]`, rows that all of a sequence's rows see. seen: `[sequences, rows, m]` bool, which of
        the m rows behind those each sees.
        """
        side = self._captured(slice(0, len(base)), base, seen, columns, at)
        self.layout = AttentionMetadata(self.stored(of, rows), side, rows)

    def _captured(
        self, part: slice, base: Tensor, seen: Tensor, columns: int, at: Tensor | None, table: Tensor | None = None
    ) -> PaddedAttention:
        """How the sequences of a part attend side by side, all of it on the device."""
        if self.split_keys:
            mask, sees = None, SplitKeys.of(base, seen, table)
        else:
            mask, sees = self._torch.folded(visible(base, seen, columns)), None
        return PaddedAttention(part, seen.shape[1], columns, at, mask, sees)

    def buffers(self, index: int) -> Buffers:
        """Where one sequence's rows are, good until there is more room."""
        if index not in self._buffers:
            self._buffers[index] = [
                (keys[index : index + 1], values[index : index + 1])
                for keys, values in zip(self.keys, self.values, strict=True)
            ]
        return self._buffers[index]

    def of_layer(self, index: int, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one sequence in one layer, `[1, kv_heads, n, D]`."""
        return self.buffers(index)[layer]

    def numbers(self, feeds: Sequence[QueryRows]) -> Sequence[int]:
        """The number of each feed's sequence among those of a forward: its place."""
        return [feed.slot.index for feed in feeds]

    def table_of(self, feeds: Sequence[QueryRows]) -> Tensor | None:
        """Where the rows of these sequences lie, if not in parts of the buffer: see `BlockRows`."""
        return None

    def stored(self, of: Tensor, places: Tensor, table: Tensor | None = None) -> Tensor:
        """Rows of a layer's buffer, `[N * kv_heads]`: of whose sequence each flat row is, and where it goes there."""
        kv_heads, capacity = self.keys.shape[2:4]
        heads = torch.arange(kv_heads, device=self.device)
        return ((of.unsqueeze(1) * kv_heads + heads) * capacity + places.unsqueeze(1)).flatten()

    def _sees(self, feed: QueryRows) -> tuple[Masks | None, AttentionPattern | None]:
        """Mask or pattern of a sequence that is alone in its buffers."""
        if self.varlen is None:
            return self._torch.sees(feed)
        return None, VarlenAttention(self.varlen, [feed], torch.zeros(1, 1, dtype=torch.long))

    def _attending(self, feeds: Sequence[QueryRows], table: Tensor | None) -> Attending:
        if self.varlen is None:
            return self._torch.attending(feeds, self.numbers(feeds))
        places = sent(self.numbers(feeds), self.device).unsqueeze(1) if table is None else table
        return VarlenAttention(self.varlen, feeds, places)

    def _positions(self, feeds: Sequence[QueryRows], places: Tensor) -> Tensor:
        """A row of a chain stands where it lies."""
        if all(feed.positions is None for feed in feeds):
            return places
        parts = places.split([feed.count for feed in feeds])
        return torch.cat(
            [part if feed.positions is None else feed.positions for part, feed in zip(parts, feeds, strict=True)]
        )

    def make_room_for(self, feeds: Sequence[QueryRows]) -> None:
        """Room for the rows that are fed."""
        self._make_room(self._used.feed(feeds))

    def release(self, index: int, rows: int) -> None:
        """Let go of what a sequence has room for behind so many rows, where others can have it."""

    def make_room(self, rows: int) -> None:
        """Room for all that have a place, and for so many rows each, which may be in use from now on."""
        self._used.fill(rows)
        self._make_room(rows)

    def _make_room(self, rows: int) -> None:
        """Room for so many rows of each; what grows one by one is not copied each time."""
        layers, there, kv_heads, capacity, dim = self.keys.shape
        if self._batch_invariant and self.varlen is None:
            rows = columns_for(rows, self.keys.dtype, dim)
        if self.taken <= there and rows <= capacity:
            return
        sequences = there if self.taken <= there else max(self.taken, there * 3 // 2)
        self._buffers.clear()
        shape = layers, sequences, kv_heads, self._room(rows, capacity) if rows > capacity else capacity, dim
        self.keys, self.values = (self._used.moved(buffer, shape) for buffer in (self.keys, self.values))

    def _room(self, rows: int, capacity: int) -> int:
        """The capacity that holds so many rows where there is too little."""
        return -(-max(rows, capacity * 3 // 2) // _ROOM) * _ROOM

    def let_go(self, feed: QueryRows) -> None:
        """Drop rows that nothing will see, where these need their room; a cache of all rows drops none."""

    def gone(self, index: int) -> int:
        """How many of the first rows of a sequence were dropped."""
        return 0

    def reachable(self, index: int, length: int) -> int:
        """How many tokens of a sequence it can go back to, `length` at most."""
        return length

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where its rows lie: graphs know them."""
        return (self.keys.data_ptr(),)

    def hold(self, index: int, rows: Mapping[int, cache.Rows], length: int) -> None:
        """Hold copies of the rows of each layer, of a text of so many tokens."""
        self.make_room(length)
        for layer, given in rows.items():
            self.layers[layer].hold(index, given, length)

    def move(self, index: int, rows: Tensor, to: int) -> None:
        """Copy `rows` `[m]` of a sequence to its row `to` and those behind it, in all layers."""
        for buffer in (self.keys, self.values):
            buffer[:, index, :, to : to + len(rows)] = buffer[:, index].index_select(2, rows)
