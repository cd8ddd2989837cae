"""Forwards of many sequences with fixed shapes and addresses: what a CUDA graph can hold.

Rows in all, rows of a sequence, sequences and columns are each filled up to the next of a few sizes. Rows that fill up
belong to a sequence that nobody reads, which has the first place.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.fixed import CapturedSteps, bucket, columns_over, grow
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.causal_model import Shareable
from sampling.forward.graphs.sequence_graphs import width_for
from utils.device.graph_pool import Tensors
from utils.device.sent import sent

_MOST = 64
"""Rows of a sequence from which on a forward reads a prompt: lengths of those are many, and none is captured."""
_STEP = 64


class SharedGraphs:
    """Forwards of many sequences as graphs. A chain and a tree of one size share one: who sees whom is an input."""

    def __init__(self, model: Shareable, cache: RowsCache) -> None:
        self._model, self._cache = model, cache
        self._filler = RowsSlot(cache)
        self._captured = CapturedSteps(cache)

    @property
    def shapes(self) -> int:
        """How many were captured, or called where nothing is."""
        return self._captured.shapes

    def can_replay(self, feeds: Sequence[QueryRows]) -> bool:
        """Whether the forward is captured: it reads no prompt."""
        return max(feed.count for feed in feeds) <= _MOST

    def replay(
        self, feeds: Sequence[QueryRows], ids: Sequence[Tensor], hidden: Sequence[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits and states of all rows `[N]`, one feed behind the other, and of some that nobody reads behind them."""
        rows = width_for(max(feed.count for feed in feeds))
        most = self._model.window + rows
        columns = bucket(max(feed.slot.length for feed in feeds) + rows, most)
        grow(self._cache, columns, most)
        columns = columns_over(self._cache, columns)
        for feed in feeds:
            self._cache.let_go(feed)
        sequences = _sequences(feeds, self._cache)
        step = partial(_forward, self._model, self._cache, columns, tuple(hidden))
        graph = self._captured.step((sequences, rows, columns, tuple(hidden)), step)
        width = _width(sum(feed.count for feed in feeds))
        logits, *states = graph(*self._padded(feeds, torch.cat(list(ids)), width, sequences, rows))
        return logits, dict(zip(hidden, states, strict=True))

    def _padded(self, feeds: Sequence[QueryRows], ids: Tensor, width: int, sequences: int, rows: int) -> Tensors:
        """What `_forward` reads of these feeds, filled up to so many rows."""
        device = self._cache.device
        base, of, places, at = [1] * sequences, list[int](), list[int](), list[int]()
        for feed in feeds:
            index, start = feed.slot.index, feed.slot.length
            base[index] = start
            of += [index] * feed.count
            places += range(start, start + feed.count)
            at += range(index * rows, index * rows + feed.count)
        filling = [0] * (width - len(of))
        flat = sent([*of, *filling, *places, *filling, *at, *filling, *base], device)
        of_there, places_there, at_there, base_there = flat.split([width, width, width, sequences])
        positions, seen = places_there, _chains(sequences, rows, device)
        if any(feed.seen is not None for feed in feeds):
            parts = places_there.split([*(feed.count for feed in feeds), len(filling)])
            laid = [*(feed.positions for feed in feeds), None]
            positions = torch.cat(
                [part if placed is None else placed for part, placed in zip(parts, laid, strict=True)]
            )
            seen = seen.clone()
            for feed in feeds:
                if feed.seen is not None:
                    seen[feed.slot.index, : feed.count, : feed.count] = feed.seen[:, feed.slot.length :]
        return F.pad(ids, (0, len(filling))), of_there, places_there, positions, at_there, base_there, seen


def _width(count: int) -> int:
    """Rows in all of the forward that feeds so many."""
    width = width_for(count)
    return width if width <= _STEP else -(-width // _STEP) * _STEP


def _sequences(feeds: Sequence[QueryRows], cache: RowsCache) -> int:
    """Sequences of the forward that feeds these: a power of two, or all that have a place."""
    needed = 1 + max(feed.slot.index for feed in feeds)
    return min(1 << (needed - 1).bit_length(), cache.keys.shape[1])


@lru_cache(maxsize=64)
def _chains(sequences: int, rows: int, device: torch.device) -> Tensor:
    """Which of its own rows each sees where all are chains, `[sequences, rows, rows]`."""
    return torch.ones(rows, rows, dtype=torch.bool, device=device).tril().expand(sequences, -1, -1).contiguous()


def _forward(
    model: Shareable,
    cache: RowsCache,
    columns: int,
    hidden: tuple[int, ...],
    ids: Tensor,
    of: Tensor,
    places: Tensor,
    positions: Tensor,
    at: Tensor,
    base: Tensor,
    seen: Tensor,
) -> Tensors:
    """(logits of all rows, states of each asked layer); nothing is read, and no address changes.

    ids, positions: `[N]`; the others: see `RowsCache.lay_out_side`.
    """
    cache.lay_out_side(of, places, at, base, seen, columns)
    logits, states = model.forward(ids, positions, None, cache, hidden, len(ids))
    return logits, *(states[layer] for layer in hidden)
