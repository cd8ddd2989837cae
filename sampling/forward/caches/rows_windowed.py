"""Rows of layers behind a window: those that no later token can see are dropped, many at a time.

A token sees the last `window` rows of its text, and drafts may be taken back. So a sequence keeps the window and room
for the longest draft before it. It drops the rest when its part of the buffer is full, so that a row is copied at most
a few times. What is left begins at column 0. A forward over fixed shapes reads from the device where that is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.rows import RowsCache
from sampling.forward.models.steps import BlockShape

LONGEST_DRAFT = 256
"""Rows before a window that are kept: so many tokens can be taken back."""
_ROOM = 512
"""Rows beyond those that a sequence has room for: a chunk of a prompt."""
_UNIT = 256


class LastRows(RowsCache):
    """The last rows of each sequence, in the layers behind windows. most: rows that one has room for."""

    def __init__(self, layers: int, shape: BlockShape, device: torch.device, dtype: torch.dtype, window: int) -> None:
        super().__init__(layers, shape, device, dtype)
        self._window, self._kept = window, window + LONGEST_DRAFT
        self.most = -(-(self._kept + _ROOM) // _UNIT) * _UNIT
        self._gone = dict[int, int]()
        self.gone_there = torch.zeros(0, dtype=torch.long, device=device)

    def gone(self, index: int) -> int:
        """See `RowsCache.gone`."""
        return self._gone.get(index, 0)

    def reachable(self, index: int, length: int) -> int:
        """See `RowsCache.reachable`: the next token sees `window` - 1 rows of the text, or there are no others."""
        gone = self.gone(index)
        return length if not gone or length - gone >= self._window - 1 else 0

    def let_go(self, feed: QueryRows) -> None:
        """See `RowsCache.let_go`. Rows behind those that all fed rows see are of several texts, and stay."""
        index, length = feed.slot.index, feed.slot.length
        if not length:
            self.begin(index, 0)
        first = (length if feed.shared is None else feed.shared) - self._kept
        gone = self.gone(index)
        if length - gone + feed.count > self.most and first > gone:
            for buffer in (self.keys, self.values):
                buffer[:, index, :, : length - first] = buffer[:, index, :, first - gone : length - gone].clone()
            self.begin(index, first)
        self.make_room(length - self.gone(index) + feed.count)

    @torch.inference_mode()
    def begin(self, index: int, gone: int) -> None:
        """Say how many rows of a sequence are gone."""
        if gone != self.gone(index):
            self._gone[index] = gone
            self.gone_there[index] = gone

    def behind(self, feed: QueryRows) -> QueryRows:
        """What is fed, as it meets the rows that are left."""
        self.let_go(feed)
        gone = self.gone(feed.slot.index)
        return replace(feed, gone=gone, seen=None if feed.seen is None else feed.seen[:, gone:])

    def held_of(self, index: int, length: int, rows: Sequence[cache.Rows]) -> None:
        """Get ready for the last rows of a text of so many tokens. Raises `ValueError` where too few are given."""
        for given in rows:
            cache.refuse_fewer(given, min(length, self._window - 1))
        self.begin(index, length - min(length, self._kept, *(keys.shape[1] for keys, _ in rows)))

    def _make_room(self, rows: int) -> None:
        super()._make_room(rows)
        if len(self.gone_there) < self.keys.shape[1]:
            gone = [self.gone(index) for index in range(self.keys.shape[1])]
            self.gone_there = torch.tensor(gone, dtype=torch.long, device=self.device)

    def _room(self, rows: int, capacity: int) -> int:
        room = super()._room(rows, capacity)
        return min(room, self.most) if rows <= self.most else room


class WindowedRowsCache(RowsCache):
    """Rows of a model some of whose layers have a window; `last` has theirs. windows: of each layer, or None."""

    def __init__(
        self, windows: Sequence[int | None], shape: BlockShape, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(windows.count(None), shape, device, dtype)
        sizes = [window for window in windows if window is not None]
        self.last = LastRows(len(sizes), shape, device, dtype, max(sizes))
        self._windowed = [place for place, window in enumerate(windows) if window is not None]
        whole, behind = iter(self.layers), iter(self.last.layers)
        self.layers = [next(whole if window is None else behind) for window in windows]

    @property
    def addresses(self) -> tuple[int, ...]:
        """See `RowsCache.addresses`."""
        return *super().addresses, *self.last.addresses

    def _make_room(self, rows: int) -> None:
        super()._make_room(rows)
        self.last.taken = self.taken
        self.last.make_room(min(rows, self.last.most))

    def wipe(self, index: int) -> None:
        """See `RowsCache.wipe`."""
        super().wipe(index)
        self.last.begin(index, 0)
        self.last.wipe(index)

    def reachable(self, index: int, length: int) -> int:
        """See `RowsCache.reachable`."""
        return self.last.reachable(index, length)

    def let_go(self, feed: QueryRows) -> None:
        """See `RowsCache.let_go`."""
        self.last.let_go(feed)

    def lay_out(self, feeds: Sequence[QueryRows]) -> Tensor:
        """See `RowsCache.lay_out`."""
        positions = super().lay_out(feeds)
        self.last.lay_out([self.last.behind(feed) for feed in feeds])
        return positions

    def lay_out_fixed(self, index: int, rows: Tensor, mask: Tensor) -> None:
        """See `RowsCache.lay_out_fixed`."""
        super().lay_out_fixed(index, rows, mask)
        gone, columns = self.last.gone_there[index : index + 1], mask.shape[1]
        place = torch.arange(min(columns, self.last.keys.shape[3]), device=mask.device) + gone
        seen = mask.index_select(1, place.clamp(max=columns - 1))
        self.last.lay_out_fixed(index, rows - gone, seen.masked_fill(place >= columns, torch.finfo(mask.dtype).min))

    def lay_out_split(self, index: int, rows: Tensor, base: Tensor, seen: Tensor) -> None:
        """See `RowsCache.lay_out_split`."""
        super().lay_out_split(index, rows, base, seen)
        gone = self.last.gone_there[index : index + 1]
        self.last.lay_out_split(index, rows - gone, base - gone, seen)

    def lay_out_side(self, of: Tensor, rows: Tensor, at: Tensor, base: Tensor, seen: Tensor, columns: int) -> None:
        """See `RowsCache.lay_out_side`."""
        super().lay_out_side(of, rows, at, base, seen, columns)
        gone = self.last.gone_there
        columns = min(columns, self.last.keys.shape[3])
        self.last.lay_out_side(of, rows - gone.index_select(0, of), at, base - gone[: len(base)], seen, columns)

    def move(self, index: int, rows: Tensor, to: int) -> None:
        """See `RowsCache.move`."""
        super().move(index, rows, to)
        gone = self.last.gone(index)
        self.last.move(index, rows - gone, to - gone)

    def hold(self, index: int, rows: Mapping[int, cache.Rows], length: int) -> None:
        """See `RowsCache.hold`."""
        self.make_room(length)
        self.last.held_of(index, length, [rows[place] for place in self._windowed if place in rows])
        super().hold(index, rows, length)
