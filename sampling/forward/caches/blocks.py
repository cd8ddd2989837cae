"""Keys and values of many sequences in blocks of rows: a text grows by a block, and no row is copied for it.

A table says which blocks a sequence has, in the order of its rows. Block 0 belongs to nobody: rows that fill up a
captured forward go there, and tables end with it (paged attention, https://arxiv.org/abs/2309.06180).
"""

from collections.abc import Callable, Mapping, Sequence
from weakref import finalize

import torch
from torch import Tensor

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import (
    AttentionMetadata,
    GroupedAttention,
    PaddedAttention,
    QueryRows,
    in_rows,
)
from sampling.forward.caches.block_pool import BlockPool
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_alone import Buffers
from sampling.forward.kernels.batch_invariant import columns_for
from sampling.forward.models.steps import BlockShape
from utils.device.sent import sent

BLOCK = 256
"""Rows of a block."""
_FIRST = 8


class OutOfBlocks(RuntimeError):
    """More blocks are wanted than a cache may have: see `BlockRows.fix`."""


class BlockRows(RowsCache):
    """`RowsCache` in blocks: keys and values `[layers, blocks, kv_heads, BLOCK, head_dim]`.

    tables: the blocks of each sequence. A block is zeroed when a sequence takes it, whoever had it before. It is free
    again when the sequence ends, is wiped, or goes on from fewer rows. The buffer grows by half where no block is free:
    then all rows are copied, and graphs are lost. Nothing else copies a row, whoever joins, leaves or grows. Sequences
    may share a block, which is free when nobody has it. Who writes to a shared one takes a copy of his own before.

    fixed: whether it has all the blocks that it may have, see `fix`. reclaim: asked to give back blocks that no
    sequence needs, until so many are free; None = nobody has such.
    """

    in_blocks = True

    def __init__(
        self,
        layers: int,
        shape: BlockShape,
        device: torch.device,
        dtype: torch.dtype,
        batch_invariant: bool = False,
    ) -> None:
        super().__init__(layers, shape, device, dtype, batch_invariant)
        size = layers, 0, shape.kv_heads, BLOCK, shape.head_dim
        self.keys = self.values = torch.zeros(size, device=device, dtype=dtype)
        self.tables: dict[int, list[int]] = {}
        self.pool = BlockPool()
        self.fixed = False
        self.reclaim: Callable[[BlockRows, int], None] | None = None

    @property
    def block(self) -> int:
        """Rows of a block."""
        return BLOCK

    @property
    def blocks(self) -> int:
        """Blocks that are there, but for block 0."""
        return max(0, self.keys.shape[1] - 1)

    @property
    def block_bytes(self) -> int:
        """Bytes of the keys and values of a block."""
        layers, _, kv_heads, rows, dim = self.keys.shape
        return 2 * layers * kv_heads * rows * dim * self.keys.element_size()

    @torch.inference_mode()
    def fix(self, blocks: int) -> None:
        """Have so many blocks from now on and never more. Raises `OutOfBlocks` where one of those there is in use."""
        if self.reclaim is not None:
            self.reclaim(self, self.blocks)
        if self.free_blocks < self.blocks:
            raise OutOfBlocks(f"{self.blocks - self.free_blocks} blocks are in use: expected none")
        layers, _, *block = self.keys.shape
        self.keys = self.values = self.keys.new_zeros(layers, 0, *block)  # those of before go first
        self.keys, self.values = (self.keys.new_zeros(layers, blocks + 1, *block) for _ in range(2))
        self.pool.clear()
        self.pool.add(range(1, blocks + 1))
        self.fixed = True

    def lacks(self, index: int, start: int, stop: int) -> int:
        """Blocks that a sequence takes to write its rows `[start, stop)`."""
        table = self.tables[index]
        copied = sum(self.pool.sharers(block) > 1 for block in table[start // BLOCK :]) if self.pool.any_shared else 0
        return max(0, -(-stop // BLOCK) - len(table)) + copied

    def has_free(self, count: int) -> bool:
        """Whether so many blocks can be taken."""
        if self.fixed and count > self.free_blocks and self.reclaim is not None:
            self.reclaim(self, count)
        return not self.fixed or count <= self.free_blocks

    @property
    def free_blocks(self) -> int:
        """Blocks that are there and that nobody has."""
        return self.pool.free

    def take(self, owner: object) -> int:
        """See `RowsCache.take`; the blocks come back with the place."""
        index = self._lowest_free()
        self.tables[index] = []
        finalize(owner, _leave, self._free, self.pool, self.tables, index)
        return index

    def lend(self, index: int, blocks: Sequence[int]) -> None:
        """Let a sequence begin with blocks that others have as well. No row is copied."""
        self.release(index, 0)
        self.tables[index] += map(self.pool.share, blocks)

    def wipe(self, index: int) -> None:
        """See `RowsCache.wipe`: its blocks are zeroed before somebody has them."""
        self.release(index, 0)

    def release(self, index: int, rows: int) -> None:
        """See `RowsCache.release`."""
        table, needed = self.tables[index], -(-rows // BLOCK)
        self.pool.give_back(table[needed:])
        del table[needed:]

    def reachable(self, index: int, length: int) -> int:
        """See `RowsCache.reachable`: rows of blocks that were given back are gone."""
        return min(length, len(self.tables[index]) * BLOCK)

    def numbers(self, feeds: Sequence[QueryRows]) -> Sequence[int]:
        """See `RowsCache.numbers`: they are counted as they are fed, for a table may have any order."""
        return range(len(feeds))

    def make_room(self, rows: int) -> None:
        """There is room for whoever is fed: see `make_room_for`."""

    def make_room_for(self, feeds: Sequence[QueryRows]) -> None:
        """See `RowsCache.make_room_for`: blocks for those that have too few, and copies of shared ones."""
        self._extend({feed.slot.index: feed.start + feed.count for feed in feeds})
        if self.pool.any_shared:
            for feed in feeds:
                self._own(feed.slot.index, feed.start // BLOCK)

    @torch.inference_mode()
    def _own(self, index: int, first: int) -> None:
        """Copies of the shared blocks of a sequence from number `first` on, which it writes to."""
        table = self.tables[index]
        for place in range(first, len(table)):
            old = table[place]
            if self.pool.sharers(old) > 1:
                (new,) = self._new(1)
                for buffer in (self.keys, self.values):
                    buffer[:, new] = buffer[:, old]
                table[place] = new
                self.pool.give_back([old])

    @torch.inference_mode()
    def _extend(self, rows: Mapping[int, int]) -> None:
        """Blocks for so many rows of each sequence."""
        lacking = {index: -(-count // BLOCK) - len(self.tables[index]) for index, count in rows.items()}
        needed = sum(max(0, count) for count in lacking.values())
        new = self._new(needed) if needed else []
        for index, count in lacking.items():
            self.tables[index] += [new.pop() for _ in range(count)]

    def _new(self, count: int) -> list[int]:
        """So many blocks that nobody had, zeroed."""
        if not self.has_free(count):
            raise OutOfBlocks(f"{count} blocks wanted and {self.free_blocks} of {self.blocks} are free")
        if count > self.free_blocks:
            self._grow(count - self.free_blocks)
        new = self.pool.take(count)
        for buffer in (self.keys, self.values):
            buffer.index_fill_(1, sent(new, self.device), 0.0)
        return new

    def _grow(self, count: int) -> None:
        """At least so many more blocks."""
        there = self.keys.shape[1]
        blocks = max(_FIRST, there * 3 // 2, max(there, 1) + count)
        old = self.keys, self.values
        self.keys, self.values = (each.new_zeros(each.shape[0], blocks, *each.shape[2:]) for each in old)
        for new, held in zip((self.keys, self.values), old, strict=True):
            new[:, :there] = held
        self.pool.add(range(max(there, 1), blocks))

    def table_of(self, feeds: Sequence[QueryRows]) -> Tensor:
        """The blocks of each feed's sequence, `[S, n]`, which end with block 0."""
        columns = max(feed.start + feed.count for feed in feeds)
        if self._batch_invariant and self.varlen is None:
            columns = columns_for(columns, self.keys.dtype, self.keys.shape[4])
        width = -(-columns // BLOCK)
        return sent(self.lines(feeds, width), self.device).view(len(feeds), width)

    def lines(self, feeds: Sequence[QueryRows | None], width: int) -> list[int]:
        """The same with so many blocks each, one line behind the other; None has block 0 alone."""
        lines = [[] if feed is None else self.tables[feed.slot.index][:width] for feed in feeds]
        return [block for line in lines for block in (*line, *[0] * (width - len(line)))]

    def lay_out_groups(
        self, of: Tensor, rows: Tensor, at: Tensor, base: Tensor, table: Tensor, groups: Sequence[tuple[Tensor, int]]
    ) -> None:
        """Prepare a captured forward of groups of sequences, each side by side: see `RowsCache.lay_out_side`.

        of: `[N]`, whose line of the table `[S, n]` each flat row has. at: `[N]`, where it lies among the sequences x
        rows of all groups, one group behind the other; the next number for rows that nobody reads. base: `[S]`.
        groups: `seen` and columns of each.
        """
        first, parts = 0, list[PaddedAttention]()
        for seen, columns in groups:
            part = slice(first, first + len(seen))
            lines = table[part, : -(-columns // BLOCK)]
            parts.append(self._captured(part, base[part], seen, columns, None, lines))
            first = part.stop
        last = sum(seen.shape[0] * seen.shape[1] for seen, _ in groups) - 1
        grouped = GroupedAttention(tuple(parts), at, at.clamp(max=last))
        self.layout = AttentionMetadata(self.stored(of, rows, table), grouped, rows, table)

    def stored(self, of: Tensor, places: Tensor, table: Tensor | None = None) -> Tensor:
        """See `RowsCache.stored`; `of` counts the lines of the table."""
        assert table is not None, "rows in blocks are found by a table"
        blocks = table.flatten().index_select(0, of * table.shape[1] + places // BLOCK)
        return super().stored(blocks, places % BLOCK)

    def _lay_out_alone(self, feed: QueryRows, attends: bool = True) -> Tensor:
        """See `RowsCache`: as one of many."""
        rows = torch.arange(feed.start, feed.start + feed.count, device=self.device)
        table = self.table_of([feed])
        attending = self._attending([feed], table) if attends else ()
        self.layout = AttentionMetadata(self.stored(torch.zeros_like(rows), rows, table), attending, rows, table)
        return self._positions([feed], rows)

    def buffers(self, index: int) -> Buffers:
        """Not called: a forward of one sequence over blocks is one of many with a table of one line."""
        raise NotImplementedError

    def of_layer(self, index: int, layer: int) -> tuple[Tensor, Tensor]:
        """See `RowsCache.of_layer`; copies."""
        table = sent(self.tables[index], self.device).unsqueeze(0)
        return in_rows(self.keys[layer], table), in_rows(self.values[layer], table)

    @torch.inference_mode()
    def hold(self, index: int, rows: Mapping[int, cache.Rows], length: int) -> None:
        """See `RowsCache.hold`."""
        self.release(index, 0)
        self._extend({index: length})
        blocks, places = self._at(index, torch.arange(length, device=self.device))
        for layer, given in rows.items():
            cache.refuse_fewer(given, length)
            for buffer, new in zip((self.keys[layer], self.values[layer]), given, strict=True):
                buffer[blocks, :, places] = new[:, new.shape[1] - length :].transpose(0, 1)

    def move(self, index: int, rows: Tensor, to: int) -> None:
        """See `RowsCache.move`."""
        there = self._at(index, torch.arange(to, to + len(rows), device=self.device))
        here = self._at(index, rows)
        for buffer in (self.keys, self.values):
            buffer[:, there[0], :, there[1]] = buffer[:, here[0], :, here[1]]

    def _at(self, index: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """In which blocks rows of a sequence lie, and where there."""
        return sent(self.tables[index], self.device).index_select(0, rows // BLOCK), rows % BLOCK


def _leave(free: list[int], pool: BlockPool, tables: dict[int, list[int]], index: int) -> None:
    """A place comes back with its blocks. It holds no cache, which may go before the owner of the place."""
    free.append(index)
    pool.give_back(tables.pop(index))
