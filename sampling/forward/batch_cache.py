"""Many sequences in one forward: the cache that lets the lean model decode a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cache import RollbackCache


class _Layer:
    """Keys and values of one layer: `[B, kv_heads, columns, head_dim]`."""

    def __init__(self, cache: "BatchCache", keys: Tensor, values: Tensor) -> None:
        self._cache, self._keys, self._values = cache, keys, values

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """One new row a sequence: `[B, heads, D]` on `[B, kv_heads, D]` -> `[B, heads * D]`.

        What a sequence sees is the cache's to know; `mask` is None.
        """
        count, heads, dim = query.shape
        stop = self._cache.column + 1
        self._keys[:, :, stop - 1], self._values[:, :, stop - 1] = keys, values
        grouped = query.view(count, keys.shape[1], heads // keys.shape[1], dim)
        seen = self._cache.visible[:, None, None, :stop]
        out = F.scaled_dot_product_attention(
            grouped, self._keys[:, :, :stop], self._values[:, :, :stop], attn_mask=seen
        )
        return out.reshape(count, heads * dim)


class BatchCache:
    """Columns of keys and values for B sequences that share a beginning and go on side by side.

    All sequences write the same column at a time. A sequence that ended gives its place to a new one, which
    sees the shared beginning and its own columns only: `restart` hides what its predecessor wrote.
    """

    def __init__(self, start: RollbackCache, batch: int, columns: int) -> None:
        self.shared = start.length
        self.column = self.shared
        first = start.layers[0].keys
        self.visible = first.new_zeros(batch, columns, dtype=torch.bool)
        self.visible[:, : self.shared] = True
        self.layers = [
            _Layer(self, *(_widened(rows, start.length, batch, columns) for rows in (layer.keys, layer.values)))
            for layer in start.layers
        ]

    @property
    def columns(self) -> int:
        """How many there are, written or not."""
        return int(self.visible.shape[1])

    def show(self, rows: Tensor) -> None:
        """Let these sequences `[m]` see the column that is written next."""
        self.visible[rows, self.column] = True

    def restart(self, rows: Sequence[int]) -> None:
        """These sequences end; others take their places, behind the shared beginning."""
        self.visible[list(rows), self.shared :] = False

    def rewind(self) -> None:
        """Every sequence ends; the columns are free again."""
        self.visible[:, self.shared :] = False
        self.column = self.shared


def _widened(rows: Tensor, length: int, batch: int, columns: int) -> Tensor:
    """A buffer for the batch whose first columns are the shared rows `[1, kv_heads, L, D]`."""
    buffer = rows.new_empty(batch, rows.shape[1], columns, rows.shape[3])
    buffer[:, :, :length] = rows[:, :, :length]
    return buffer
