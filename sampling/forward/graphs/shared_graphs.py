"""Forwards of many sequences with fixed shapes and addresses: what a CUDA graph can hold.

Rows in all, rows of a sequence, rows that not all of them see, sequences and columns are each filled up to the next of
a few sizes. Rows that fill up belong to a sequence that nobody reads.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.fixed import CapturedSteps, bucket, columns_over, grow
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from utils.device.graph_pool import Tensors
from utils.device.sent import sent

MOST = 65
"""Rows of a sequence at the most: a root and the largest tree. A forward of more reads a prompt, whose lengths vary."""
_ROWS = (1, 2, 3, 5, 9, 17, 33, MOST)
"""Rows of a sequence: a root, and 0, 1, 2, 4 drafts and so on."""


class SharedGraphs:
    """Forwards over the rows of many sequences as graphs. A chain and a tree of one size share one.

    Who sees whom is an input. window: of the model whose rows they are.
    """

    def __init__(self, cache: RowsCache, window: int) -> None:
        self._cache, self._window = cache, window
        self._captured = CapturedSteps(cache)

    @cached_property
    def _filler(self) -> RowsSlot:
        """The sequence that nobody reads."""
        return RowsSlot(self._cache)

    @property
    def shapes(self) -> int:
        """How many were captured, or called where nothing is."""
        return self._captured.shapes

    def can_replay(self, feeds: Sequence[QueryRows]) -> bool:
        """Whether the forward is captured: it reads no prompt."""
        return max(feed.count + apart_of(feed) for feed in feeds) <= MOST

    def reads_prompt(self, feeds: Sequence[QueryRows]) -> bool:
        """Whether a forward that is captured reads a part of a prompt."""
        return False

    def replay(
        self, feeds: Sequence[QueryRows], key: Hashable, function: Callable[..., Tensors], *inputs: Tensor
    ) -> Tensors:
        """Outputs `[M, ...]` of `function(positions [M], *inputs)`, of whose M rows the first N are those that are fed.

        inputs: `[N, ...]`, one feed behind the other, or of fewer rows, up to one for each feed. key: what the function
        was made for. It reads nothing on the host, and its shapes follow from those of its inputs.
        """
        rows = rows_for(max(feed.count for feed in feeds))
        apart = rows_for(max(feed.count + apart_of(feed) for feed in feeds))
        most = self._window + max(_ROWS)
        needed = 1 + max(self._filler.index, *(feed.slot.index for feed in feeds))
        columns = bucket(max(feed.slot.length for feed in feeds) + apart, most)
        grow(self._cache, columns, most)
        columns = columns_over(self._cache, columns)
        for feed in feeds:
            self._cache.let_go(feed)
        sequences = min(1 << (needed - 1).bit_length(), self._cache.keys.shape[1])
        count = sum(feed.count for feed in feeds)
        step = partial(_laid_out, self._cache, columns, function)
        graph = self._captured.step((sequences, rows, apart, columns, key), step)
        width = width_for(count)
        ready = [filled(each, width if len(each) == count else width_for(len(each))) for each in inputs]
        return graph(*self._layout(feeds, width, sequences, rows, apart), *ready)

    def _layout(self, feeds: Sequence[QueryRows], width: int, sequences: int, rows: int, apart: int) -> Tensors:
        """Positions `[width]`, and what `RowsCache.lay_out_side` reads of these feeds."""
        device = self._cache.device
        base, of, places, at = [1] * sequences, list[int](), list[int](), list[int]()
        for feed in feeds:
            index, start, count = feed.slot.index, feed.slot.length, feed.count
            base[index] = start - apart_of(feed)
            of += [index] * count
            places += range(start, start + count)
            at += range(index * rows, index * rows + count)
        filler, nothing = self._filler.index, width - len(of)
        of += [filler] * nothing
        places += [0] * nothing
        at += [filler * rows] * nothing
        flat = sent([*of, *places, *at, *base], device)
        of_there, places_there, at_there, base_there = flat.split([width, width, width, sequences])
        positions, seen = places_there, chains(sequences, rows, apart, device)
        if any(feed.seen is not None for feed in feeds):
            parts = places_there.split([*(feed.count for feed in feeds), nothing])
            laid = [*(feed.positions for feed in feeds), None]
            positions = torch.cat(
                [part if placed is None else placed for part, placed in zip(parts, laid, strict=True)]
            )
            seen = seen.clone()
            for feed in feeds:
                if feed.seen is not None:
                    tail = feed.seen[:, feed.slot.length - apart_of(feed) :]
                    seen[feed.slot.index] = False
                    seen[feed.slot.index, : feed.count, : tail.shape[1]] = tail
        return positions, of_there, places_there, at_there, base_there, seen


def apart_of(feed: QueryRows) -> int:
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
def chains(sequences: int, rows: int, apart: int, device: torch.device) -> Tensor:
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
    """The function over rows that are laid out; nothing is read, and no address changes."""
    cache.lay_out_side(of, places, at, base, seen, columns)
    return function(positions, *inputs)
