"""Forwards of many sequences with fixed shapes and addresses: what a CUDA graph can hold.

Rows in all, rows of a sequence, rows that not all of them see, sequences and columns are each filled up to the next of
a few sizes. Rows that fill up belong to a sequence that nobody reads.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.fixed import CapturedSteps, bucket, columns_over, grow
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from utils.device.graph_pool import Tensors
from utils.device.sent import sent
from utils.device.spare import with_room

MOST = 65
"""Rows of a sequence at the most: a root and the largest tree. A forward of more reads a prompt, whose lengths vary."""
_ROWS = (1, 2, 3, 5, 9, 17, 33, MOST)
"""Rows of a sequence: a root, and 0, 1, 2, 4 drafts and so on."""


class _Numbered(NamedTuple):
    """The number of each feed's sequence among those of a forward, how many those are, and whose rows fill up."""

    numbers: Sequence[int]
    sequences: int
    filler: int


class SharedGraphs:
    """Forwards over the rows of many sequences as graphs. A chain and a tree of one size share one.

    Who sees whom is an input. window: of the model whose rows they are.
    """

    def __init__(self, cache: RowsCache, window: int) -> None:
        self._cache, self._window = cache, window
        self._captured = CapturedSteps(cache)

    @cached_property
    def _filler(self) -> RowsSlot | None:
        """The sequence that nobody reads; rows in blocks need none."""
        return None if self._cache.in_blocks else RowsSlot(self._cache)

    @property
    def shapes(self) -> int:
        """How many were captured, or called where nothing is."""
        return self._captured.shapes

    def can_replay(self, feeds: Sequence[QueryRows]) -> bool:
        """Whether the forward is captured: it reads no prompt."""
        return max(feed.count + _apart(feed) for feed in feeds) <= MOST

    def replay(
        self, feeds: Sequence[QueryRows], key: Hashable, function: Callable[..., Tensors], *inputs: Tensor
    ) -> Tensors:
        """Outputs `[M, ...]` of `function(positions [M], *inputs)`, of whose M rows the first N are those that are fed.

        inputs: `[N, ...]`, one feed behind the other, or of fewer rows, up to one for each feed. key: what the function
        was made for. It reads nothing on the host, and its shapes follow from those of its inputs.
        """
        rows = rows_for(max(feed.count for feed in feeds))
        apart = rows_for(max(feed.count + _apart(feed) for feed in feeds))
        columns = self._columns(feeds, apart)
        count = sum(feed.count for feed in feeds)
        width = width_for(count)
        there = self._numbered(feeds, width > count)
        step = partial(_laid_out, self._cache, columns, function)
        graph = self._captured.step((there.sequences, rows, apart, columns, key), step)
        table = self._cache.table_of(feeds, there.sequences, columns)
        ready = [filled(each, width if len(each) == count else width_for(len(each))) for each in inputs]
        return graph(*self._layout(feeds, width, there, rows, apart), *(() if table is None else (table,)), *ready)

    def _columns(self, feeds: Sequence[QueryRows], apart: int) -> int:
        """Columns of the next forward, for which there is room then."""
        most = self._window + MOST
        columns = bucket(max(feed.slot.length for feed in feeds) + apart, most)
        if self._filler is None:
            with_room(partial(self._cache.make_room_for, feeds))
            return columns
        grow(self._cache, columns, most)
        for feed in feeds:
            self._cache.let_go(feed)
        return columns_over(self._cache, columns)

    def _numbered(self, feeds: Sequence[QueryRows], fills: bool) -> _Numbered:
        """Blocks are found by a table, and who is fed is all there is; else the places up to the last that is fed."""
        numbers = self._cache.numbers(feeds)
        if self._filler is None:
            sequences = 1 << (len(feeds) + fills - 1).bit_length()
            return _Numbered(numbers, sequences, sequences - 1)
        filler = self._filler.index
        sequences = min(1 << max(filler, *numbers).bit_length(), self._cache.keys.shape[1])
        return _Numbered(numbers, sequences, filler)

    def _layout(self, feeds: Sequence[QueryRows], width: int, there: _Numbered, rows: int, apart: int) -> Tensors:
        """Positions `[width]`, and what `RowsCache.lay_out_side` reads of these feeds."""
        device, sequences = self._cache.device, there.sequences
        base, of, places, at = [1] * sequences, list[int](), list[int](), list[int]()
        for number, feed in zip(there.numbers, feeds, strict=True):
            start, count = feed.slot.length, feed.count
            base[number] = start - _apart(feed)
            of += [number] * count
            places += range(start, start + count)
            at += range(number * rows, number * rows + count)
        nothing = width - len(of)
        of += [there.filler] * nothing
        places += [0] * nothing
        at += [there.filler * rows] * nothing
        flat = sent([*of, *places, *at, *base], device)
        of_there, places_there, at_there, base_there = flat.split([width, width, width, sequences])
        positions, seen = places_there, _chains(sequences, rows, apart, device)
        if any(feed.seen is not None for feed in feeds):
            parts = places_there.split([*(feed.count for feed in feeds), nothing])
            laid = [*(feed.positions for feed in feeds), None]
            positions = torch.cat(
                [part if placed is None else placed for part, placed in zip(parts, laid, strict=True)]
            )
            seen = seen.clone()
            for number, feed in zip(there.numbers, feeds, strict=True):
                if feed.seen is not None:
                    tail = feed.seen[:, feed.slot.length - _apart(feed) :]
                    seen[number] = False
                    seen[number, : feed.count, : tail.shape[1]] = tail
        return positions, of_there, places_there, at_there, base_there, seen


def _apart(feed: QueryRows) -> int:
    """How many of the rows before those that are fed are not seen by all of them."""
    return 0 if feed.shared is None else feed.slot.length - feed.shared


def rows_for(count: int) -> int:
    """Rows of a sequence in the forward that feeds so many of one."""
    return next((rows for rows in _ROWS if count <= rows), count)


def width_for(count: int) -> int:
    """Rows in all of the forward that feeds so many: at most a quarter more, four numbers for twice as many rows."""
    step = max(1, (1 << (count - 1).bit_length()) // 8) if count else 1
    return -(-max(count, 1) // step) * step


def filled(rows: Tensor, width: int) -> Tensor:
    """Rows `[n, ...]` with zeros behind them."""
    return F.pad(rows, (*(0, 0) * (rows.dim() - 1), 0, width - len(rows)))


@lru_cache(maxsize=64)
def _chains(sequences: int, rows: int, apart: int, device: torch.device) -> Tensor:
    """Which of `apart` rows each row sees where all are chains, `[sequences, rows, apart]`."""
    return torch.ones(rows, apart, dtype=torch.bool, device=device).tril().expand(sequences, -1, -1).contiguous()


def _laid_out(
    cache: RowsCache,
    columns: int,
    function: Callable[..., Tensors],
    positions: Tensor,
    of: Tensor,
    places: Tensor,
    at: Tensor,
    base: Tensor,
    seen: Tensor,
    *inputs: Tensor,
) -> Tensors:
    """The function over rows that are laid out; nothing is read, and no address changes.

    inputs: the function's, behind the table of rows in blocks.
    """
    table, inputs = (inputs[0], inputs[1:]) if cache.in_blocks else (None, inputs)
    cache.lay_out_side(of, places, at, base, seen, columns, table)
    return function(positions, *inputs)
