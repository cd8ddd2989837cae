"""A cache from which a row attends alike, bit for bit, however many rows are fed with it.

Sums of floating-point numbers depend on their order, and products choose it by their shape. Here each fed row is a
sequence of its own, with its query heads as the only rows of its products, and sees its rows side by side, as many as a
multiple of `UNIT`: one row fed alone has the same shapes, and the same sums, as that row among sixteen.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cache import RollbackCache, RollbackLayer, seen

UNIT = 16


class SteadyLayer(RollbackLayer):
    """One layer's part of a steady cache."""

    _cache: "SteadyCache"

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """See `RollbackLayer.attend`; mask: what `SteadyCache.additive` gave, its rows repeated or not."""
        count, heads, dim = query.shape
        kv_heads = keys.shape[1]
        self.write(keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0))
        known, meant = self._cache.seen_rows(self._index, count)
        grouped = query.reshape(count, kv_heads, heads // kv_heads, dim)
        seen = None if mask is None else mask[:count, None, None]
        return F.scaled_dot_product_attention(grouped, known, meant, attn_mask=seen).reshape(count, heads * dim)


class SteadyCache(RollbackCache):
    """See the module. Trees and branches cost a copy of the rows that each draft sees."""

    def __init__(self, num_layers: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(num_layers, device, dtype)
        self.layers = [SteadyLayer(self, index) for index in range(num_layers)]
        self._columns = 0
        self._order: Tensor | None = None

    def mask(self, count: int, parents: Sequence[int] | None = None) -> Tensor:
        """Which of its `columns` rows each of n tokens sees, additive, `[n, columns]`."""
        return self.additive(seen(self.length, count, parents, self.device))

    def additive(self, seen: Tensor) -> Tensor:
        """The same for rows that see any others, `[n, length + n]` bool; a row's own are moved side by side."""
        counts = seen.sum(1, keepdim=True)
        self._columns = -(-seen.shape[1] // UNIT) * UNIT
        side_by_side = torch.arange(self._columns, device=self.device) < counts
        scattered = bool((seen != side_by_side[:, : seen.shape[1]]).any())
        self._order = None
        if scattered:
            order = torch.argsort(~seen, dim=1, stable=True)
            self._order = F.pad(order, (0, self._columns - seen.shape[1]))
        return super().additive(side_by_side)

    def seen_rows(self, index: int, count: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer as each of n tokens sees them, `[n, kv_heads, columns, head_dim]`."""
        assert self._buffers is not None
        keys, values = self._buffers.layers[index]
        return self._as_seen(keys, count), self._as_seen(values, count)

    def _as_seen(self, rows: Tensor, count: int) -> Tensor:
        if self._order is None:
            return rows[:, :, : self._columns].expand(count, -1, -1, -1)
        return rows[0, :, self._order].transpose(0, 1)
