"""A key/value cache that rolls back for nothing: preallocated buffers and a length.

Rows behind `length` are stale and overwritten by the next forward, so `crop` is an assignment. The layers
are transformers cache layers, so that any causal model's own forward can write into them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import Cache, CacheLayerMixin

_GROWTH = 256


class RollbackLayer(CacheLayerMixin):
    """Keys and values of one layer: `[1, kv_heads, capacity, head_dim]`, of which `length` rows count."""

    is_compileable = False
    is_croppable = True

    def __init__(self, cache: "RollbackCache") -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take dtype, device and shape from the first keys and values; reserve the asked capacity."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = self._buffer(key_states)
        self.values = self._buffer(value_states)
        self.is_initialized = True

    def _buffer(self, like: Tensor) -> Tensor:
        return like.new_empty(like.shape[0], like.shape[1], self._cache.capacity, like.shape[3])

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store n rows `[1, kv_heads, n, head_dim]` behind the committed ones; return all rows so far."""
        start, stop = self._cache.length, self._cache.length + keys.shape[2]
        if not self.is_initialized:
            self._cache.reserve(stop)
            self.lazy_initialization(keys, values)
        elif stop > self.keys.shape[2]:
            self._cache.reserve(stop)
            self._grow()
        self.keys[:, :, start:stop] = keys
        self.values[:, :, start:stop] = values
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Store the rows and attend from them: `[n, heads, D]` on `[n, kv_heads, D]` -> `[n, heads * D]`.

        Query heads of one group become rows of one product, so that no key is ever repeated; mask: additive,
        `[group * n, L]`, the rows of a group's heads below each other.
        """
        count, heads, dim = query.shape
        kv_heads = keys.shape[1]
        keys, values = self.write(keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0))
        folded = query.transpose(0, 1).reshape(1, kv_heads, heads // kv_heads * count, dim)
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
        return out.view(heads, count, dim).transpose(0, 1).reshape(count, heads * dim)

    def _grow(self) -> None:
        """Both buffers change in one statement: an interrupt must not leave them of two sizes."""
        self.keys, self.values = self._copied(self.keys), self._copied(self.values)

    def _copied(self, old: Tensor) -> Tensor:
        new = self._buffer(old)
        new[:, :, : self._cache.length] = old[:, :, : self._cache.length]
        return new

    @torch.inference_mode()
    def move(self, source: Tensor, target: int) -> None:
        """Copy the rows `source` `[m]` to target, target + 1, ..."""
        stop = target + source.shape[0]
        self.keys[:, :, target:stop] = self.keys.index_select(2, source)
        self.values[:, :, target:stop] = self.values.index_select(2, source)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """What a transformers attention layer calls: `write` under its name there."""
        return self.write(key_states, value_states)

    def get_seq_length(self) -> int:
        return self._cache.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.length + query_length, 0

    def get_max_length(self) -> int:
        return -1


class RollbackCache(Cache):
    """The layers of one sequence and the number of rows that count.

    A forward writes behind `length` in every layer; `advance` then makes those rows count. Nothing else
    moves `length` forward, so a forward that is interrupted half-way leaves the cache as it was.
    """

    def __init__(self, num_layers: int) -> None:
        self.length = 0
        self.capacity = _GROWTH
        super().__init__(layers=[RollbackLayer(self) for _ in range(num_layers)])

    def reserve(self, rows: int) -> None:
        """Make the next allocation hold at least `rows`, in steps that keep growth rare."""
        if rows > self.capacity:
            self.capacity = -(-max(rows, self.capacity * 3 // 2) // _GROWTH) * _GROWTH

    def advance(self, rows: int) -> None:
        """Count `rows` more rows: the ones that a forward has just written."""
        self.length += rows

    def crop(self, length: int) -> None:
        """Forget the rows from `length` on; O(1). Raises `ValueError` for more rows than there are."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop {self.length} rows to {length}")
        self.length = length

    def keep(self, base: int, path: Sequence[int]) -> None:
        """Of the rows written from `base` on, keep row `base` and the accepted drafts.

        Draft i sits in row base + 1 + i. A path (0, 1, ..., m - 1), which is all a chain can have, is a
        crop; any other is compacted. Example: base 10, path (1, 4) -> row 12 moves to 11, row 15 to 12,
        length 13.
        """
        if any(row != place for place, row in enumerate(path)):
            for layer in self.layers:
                layer.move(torch.tensor([base + 1 + row for row in path], device=layer.keys.device), base + 1)
        self.crop(base + 1 + len(path))
