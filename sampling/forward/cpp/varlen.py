"""Attention of the flat rows of many sequences on a CPU, each over the columns that it sees: none is padded.

A row comes out alike, bit for bit, whatever is fed with it. See `varlen.cpp`.
"""

from collections.abc import Callable, Iterator, Sequence
from ctypes import Structure, addressof, c_float, c_int64, c_void_p
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

from sampling.forward.kernels.scores import PLAIN_SCORES, Scores

Attend = Callable[[int, int, int, int, int], None]
"""Addresses of a layout, of queries, keys and values, and of what is filled."""

_POINTERS = ("firsts", "counts", "more_at", "more", "table", "sinks")
_SIZES = ("sequences", "kv_heads", "group", "line", "block", "by_block", "by_head", "by_row", "window", "threads")


class _Layout(Structure):
    """`Layout` of `varlen.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in _POINTERS),
        *((name, c_int64) for name in _SIZES),
        ("scale", c_float),
        ("cap", c_float),
    )


class FedRows(Protocol):
    """Rows of one sequence: see `QueryRows`."""

    @property
    def start(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def seen(self) -> Tensor | None: ...


class VarlenAttention:
    """What the flat rows of S sequences see: see `AttentionPattern`.

    table: `[S, n]` int64, the blocks of each sequence, or its place among the buffers.
    """

    def __init__(self, kernel: Attend, feeds: Sequence[FedRows], table: Tensor) -> None:
        further = [columns for feed in feeds for columns in _further(feed)]
        self._kernel = kernel
        self._tensors = {
            "firsts": _bounds(tuple([feed.count for feed in feeds])),
            "counts": _leading(feeds[0]) if len(feeds) == 1 else torch.cat([_leading(feed) for feed in feeds]),
            "more_at": _bounds(tuple(map(len, further))),
            "more": _NONE if not any(further) else _whole([column for columns in further for column in columns]),
            "table": table,
        }
        self._layouts: dict[tuple[Any, ...], _Layout] = {}

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores = PLAIN_SCORES) -> Tensor:
        """`[N, heads, D]` on buffers `[B, kv_heads, capacity, D]` or on blocks -> `[N, heads * D]`."""
        heads, dim = query.shape[1:]
        if query.stride()[1:] != (dim, 1):
            query = query.contiguous()
        layout = self.layout(heads, query.stride(0), keys, scores)
        out = query.new_empty(len(query), heads * dim)
        self._kernel(layout, query.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr())
        return out

    def layout(self, heads: int, by_row: int, keys: Tensor, scores: Scores) -> int:
        """The address of what the kernel is told, which this keeps. by_row: from one row of queries to the next."""
        key = heads, by_row, keys.stride(), scores.window, scores.scale, scores.cap, id(scores.sinks)
        made = self._layouts.get(key) or self._layouts.setdefault(key, self._laid_out(heads, by_row, keys, scores))
        return addressof(made)

    def _laid_out(self, heads: int, by_row: int, keys: Tensor, scores: Scores) -> _Layout:
        kv_heads, block, dim = keys.shape[1:]
        sinks = None if scores.sinks is None else scores.sinks.float().contiguous()
        self._tensors[f"sinks {id(scores.sinks)}"] = torch.zeros(0) if sinks is None else sinks  # which it points to
        pointers = {name: self._tensors[name].data_ptr() for name in _POINTERS[:-1]}
        table = self._tensors["table"]
        return _Layout(
            **pointers,
            sinks=None if sinks is None else sinks.data_ptr(),
            sequences=len(table),
            kv_heads=kv_heads,
            group=heads // kv_heads,
            line=table.shape[1],
            block=block,
            by_block=keys.stride(0),
            by_head=keys.stride(1),
            by_row=by_row,
            window=scores.window or 0,
            threads=torch.get_num_threads(),
            scale=dim**-0.5 if scores.scale is None else scores.scale,
            cap=scores.cap or 0.0,
        )


def _leading(feed: FedRows) -> Tensor:
    """How many of the first columns each row sees, `[n]` int32; of a chain that is all that it sees."""
    if feed.seen is None:
        return torch.arange(feed.start + 1, feed.start + feed.count + 1, dtype=torch.int32)
    return feed.seen.int().cumprod(1).sum(1, dtype=torch.int32)


def _further(feed: FedRows) -> Iterator[Sequence[int]]:
    """The columns that each row sees behind those, in rising order."""
    if feed.seen is None:
        yield from [()] * feed.count
        return
    behind = feed.seen & (feed.seen.int().cumprod(1) == 0)
    for row in behind:
        yield row.nonzero().flatten().tolist()


def _whole(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@lru_cache(maxsize=256)
def _bounds(sizes: tuple[int, ...]) -> Tensor:
    """Where parts of these sizes begin, one behind the other, and the last ends."""
    return _whole([0, *accumulate(sizes)])


_NONE = _whole([])
