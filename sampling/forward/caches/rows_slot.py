"""The rows of one sequence among those of many."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.rows import RowsCache


class RowsSlot(cache.SequenceCache):
    """The rows of one sequence; layers: of all sequences."""

    def __init__(self, owner: RowsCache) -> None:
        self.owner, self.index, self.layers = owner, owner.take(self), owner.layers
        self.device, self.dtype = owner.device, owner.keys.dtype

    @property
    def storage(self) -> RowsCache:
        """See `SequenceCache.storage`."""
        return self.owner

    def lay_out(self, count: int, parents: Sequence[int] | None = None) -> tuple[Tensor, None]:
        """See `SequenceCache.lay_out`; its layers need no mask."""
        return self.owner.lay_out([self.fed(count, parents)]), None

    def lay_out_seen(self, positions: Tensor, seen: Tensor, shared: int | None = None) -> None:
        """See `SequenceCache.lay_out_seen`."""
        self.owner.lay_out([QueryRows(self, len(positions), positions, seen, shared)])

    def crop(self, length: int) -> None:
        """See `SequenceCache.crop`; raises `ValueError` as well where rows are gone that the next token sees."""
        if self.owner.reachable(self.index, length) < length:
            raise ValueError(f"cannot crop to {length} rows: some that the next token sees are gone")
        super().crop(length)

    def rows(self) -> dict[int, cache.Rows]:
        """See `KeptCache.rows`."""
        self.owner.make_room(self.length)
        return {number: layer.held(self.index, self.length) for number, layer in enumerate(self.layers)}

    def fill(self, rows: Mapping[int, cache.Rows], count: int) -> None:
        """See `KeptCache.fill`."""
        self.crop(0)
        self.owner.hold(self.index, rows, count)
        self.advance(count)

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        self.owner.move(self.index, rows, to)

    def fed(self, count: int, parents: Sequence[int] | None) -> QueryRows:
        """n rows of a chain or a tree behind those that count."""
        if parents is None:
            return QueryRows(self, count)
        positions = cache.positions(self.length, count, parents, self.device)
        return QueryRows(self, count, positions, cache.seen(self.length, count, parents, self.device))
