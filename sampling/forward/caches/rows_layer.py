"""One layer of the rows of many sequences, as a model's blocks see it."""

from typing import TYPE_CHECKING
from weakref import proxy

from torch import Tensor

from sampling.forward.caches import cache
from sampling.forward.caches.rows_alone import AloneLayout
from sampling.forward.cpp.varlen import VarlenAttention
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.models.steps import Destination

if TYPE_CHECKING:
    from sampling.forward.caches.rows import RowsCache


class RowsLayer:
    """One layer's part of a `RowsCache`."""

    def __init__(self, owner: "RowsCache", index: int) -> None:
        self._owner: RowsCache = proxy(owner)  # which owns its layers: memory is free at once where it goes
        self._index = index

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store flat rows `[N, kv_heads, D]`; the buffers of all sequences, `[B, kv_heads, capacity, D]`."""
        layout = self._owner.layout
        if isinstance(layout, AloneLayout):
            return layout.write(self._index, keys, values)
        stored = self._stored
        for buffer, rows in zip(stored, (keys, values), strict=True):
            buffer.view(-1, buffer.shape[-1]).index_copy_(0, layout.places, rows.flatten(0, 1))
        return stored

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Masks | None, scores: Scores) -> Tensor:
        """See `RollbackLayer.attend`, for flat rows; who sees whom is the cache's to know."""
        layout = self._owner.layout
        if isinstance(layout, AloneLayout):
            return layout.attend(self._index, query, keys, values, scores)
        return layout.attend(query, *self.write(keys, values), scores)

    def destination(self) -> Destination | None:
        """See `StepRows.destination`."""
        layout = self._owner.layout
        if isinstance(layout, AloneLayout):
            return layout.destination(self._index)
        kv_heads = self._owner.keys.shape[2]
        varlen = layout.attending if isinstance(layout.attending, VarlenAttention) else None
        return Destination(*self._stored, layout.places, kv_heads, 1, 0, varlen)

    def attend_stored(self, query: Tensor, scores: Scores) -> Tensor:
        """See `StepRows.attend_stored`."""
        layout = self._owner.layout
        if isinstance(layout, AloneLayout):
            return layout.attend_stored(self._index, query, scores)
        return layout.attend(query, *self._stored, scores)

    @property
    def _stored(self) -> tuple[Tensor, Tensor]:
        """The buffers of all sequences."""
        return self._owner.keys[self._index], self._owner.values[self._index]

    def held(self, index: int, length: int) -> cache.Rows:
        """Views of the rows of a sequence of so many tokens that are there, `[kv_heads, n, D]` each."""
        keys, values = self._owner.of_layer(index, self._index)
        count = length - self._owner.gone(index)
        return keys[0, :, :count], values[0, :, :count]

    def hold(self, index: int, rows: cache.Rows, length: int) -> None:
        """Store copies of rows `[kv_heads, n, D]`, the last of a text of so many tokens."""
        count = length - self._owner.gone(index)
        cache.refuse_fewer(rows, count)
        for buffer, given in zip(self._owner.buffers(index)[self._index], rows, strict=True):
            buffer[0, :, :count] = given[:, given.shape[1] - count :]
