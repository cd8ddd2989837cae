"""Buffers of rows that grow: only rows that are in use are copied."""

from collections.abc import Iterable, Sequence

from torch import Tensor

from sampling.forward.caches.attention_metadata import QueryRows
from utils.device.memory import zeros


class UsedRows:
    """How many rows of each sequence were fed so far."""

    def __init__(self) -> None:
        self._of_all, self._of = 0, dict[int, int]()

    def feed(self, feeds: Iterable[QueryRows]) -> int:
        """Count rows that are fed; the most that one of these sequences has."""
        most = 0
        for feed in feeds:
            index, rows = feed.slot.index, feed.start + feed.count
            self._of[index], most = max(rows, self._of.get(index, 0)), max(rows, most)
        return most

    def fill(self, rows: int) -> None:
        """Every sequence may have so many."""
        self._of_all = max(rows, self._of_all)

    def moved(self, held: Tensor, shape: Sequence[int]) -> Tensor:
        """Zeros of this shape `[layers, B, kv_heads, capacity, D]`, with what is in use of a buffer that is smaller."""
        new = zeros(shape, held)
        for index in range(held.shape[1]):
            rows = min(held.shape[3], max(self._of_all, self._of.get(index, 0)))
            new[:, index, :, :rows] = held[:, index, :, :rows]
        return new
