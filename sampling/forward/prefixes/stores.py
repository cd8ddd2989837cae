"""How the rows of a prefix are kept: as copies, or as blocks that texts share."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast
from weakref import ref

import torch
from torch import Tensor

from sampling.forward.caches.blocks import BlockRows
from sampling.forward.caches.cache import KeptCache, Rows, SequenceCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.prefixes.tree import BlockStore

COPIED = 32
"""Rows of a copied block."""

Copies = dict[int, Rows]


class RowsStore(BlockStore, Protocol):
    """A `BlockStore` that takes rows out of the cache of a text and puts them into another's."""

    def keeping(self, cache: Any, length: int) -> Callable[[int, int], Any]:
        """What gives the handle of rows `[start, stop)` of a text, of which `length` rows count; None for none."""
        ...

    def lend(self, cache: Any, handles: Sequence[Any], rows: int) -> None:
        """Let a text begin with the first `rows` rows of these blocks, and no others."""
        ...


class CopiedRows:
    """A handle is copies of keys and values. They are copied again into the text's own place."""

    grain = COPIED

    @torch.inference_mode()
    def keeping(self, cache: SequenceCache, length: int) -> Callable[[int, int], Copies | None]:
        """See `RowsStore.keeping`. Rows that a window has dropped cannot be kept, nor numbers that are none."""
        held = cast(KeptCache, cache).rows()
        parts = [part for rows in held.values() for part in rows]
        whole = bool(parts) and all(part.shape[1] == length for part in parts)

        def keep(start: int, stop: int) -> Copies | None:
            if not whole or not finite([part[:, start:stop] for part in parts]):
                return None
            return {
                layer: (keys[:, start:stop].clone(), values[:, start:stop].clone())
                for layer, (keys, values) in held.items()
            }

        return keep

    @torch.inference_mode()
    def lend(self, cache: SequenceCache, handles: Sequence[Copies], rows: int) -> None:
        """See `RowsStore.lend`."""
        cast(KeptCache, cache).fill({layer: _joined(handles, layer, rows) for layer in handles[0]}, rows)

    def size(self, handle: Copies) -> int:
        """See `BlockStore.size`."""
        return sum(part.numel() * part.element_size() for rows in handle.values() for part in rows)

    def in_use(self, handle: Copies) -> bool:
        """See `BlockStore.in_use`: texts have copies of their own."""
        return False

    def drop(self, handle: Copies) -> None:
        """See `BlockStore.drop`."""
        handle.clear()


def _joined(handles: Sequence[Copies], layer: int, rows: int) -> Rows:
    keys, values = zip(*(handle[layer] for handle in handles), strict=True)
    return torch.cat(keys, dim=1)[:, :rows], torch.cat(values, dim=1)[:, :rows]


class SharedBlocks:
    """A handle is the number of a block, which texts and the tree have together: see `BlockRows.lend`."""

    def __init__(self, owner: BlockRows) -> None:
        self._owner = ref(owner)  # a tree outlives the texts of a batch, not their cache
        self.grain = owner.block

    @torch.inference_mode()
    def keeping(self, cache: RowsSlot, length: int) -> Callable[[int, int], int | None]:
        """See `RowsStore.keeping`; numbers that are none are not kept."""
        owner = cast(BlockRows, cache.owner)

        def keep(start: int, stop: int) -> int | None:
            block = owner.tables[cache.index][start // self.grain]
            rows = [buffer[:, block, :, : stop - start] for buffer in (owner.keys, owner.values)]
            return owner.pool.share(block) if finite(rows) else None

        return keep

    def lend(self, cache: RowsSlot, handles: Sequence[int], rows: int) -> None:
        """See `RowsStore.lend`."""
        cache.crop(0)
        cast(BlockRows, cache.owner).lend(cache.index, handles)
        cache.advance(rows)

    def size(self, handle: int) -> int:
        """See `BlockStore.size`: a block takes its room however few of its rows count."""
        owner = self._owner()
        return 0 if owner is None else owner.block_bytes

    def of(self, owner: BlockRows) -> bool:
        """Whether its blocks are those of this cache."""
        return self._owner() is owner

    def in_use(self, handle: int) -> bool:
        """See `BlockStore.in_use`."""
        owner = self._owner()
        return owner is not None and owner.pool.sharers(handle) > 1

    def drop(self, handle: int) -> None:
        """See `BlockStore.drop`."""
        if (owner := self._owner()) is not None:
            owner.pool.give_back([handle])


def finite(parts: Sequence[Tensor]) -> bool:
    """Whether all entries are numbers; read once."""
    sums = [part.sum(dtype=None if part.dtype == torch.float64 else torch.float32) for part in parts]
    return bool(torch.stack(sums).isfinite().all())


def store_of(runner: Any) -> RowsStore | None:
    """How the rows of a runner's text can be kept; None where a text is more than its rows, or has none."""
    cache = getattr(runner, "cache", None)
    if cache is None or not getattr(runner.model, "keeps_rows", False):
        return None
    if isinstance(cache, RowsSlot) and isinstance(cache.owner, BlockRows):
        return SharedBlocks(cache.owner)
    return CopiedRows() if hasattr(cache, "rows") and hasattr(cache, "fill") else None
