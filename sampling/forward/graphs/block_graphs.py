"""Forwards over rows in blocks with fixed shapes and addresses: rounds of many texts, and chunks of prompts.

Texts are numbered as they are fed, and a table says where their rows lie: a graph is for so many texts, whichever they
are. Who reads a part of a prompt attends in a group of its own, so that no round is filled up to as many rows.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.caches.fixed import bucket
from sampling.forward.caches.rows import RowsCache
from sampling.forward.graphs.shared_graphs import MOST, SharedGraphs, apart_of, chains, filled, rows_for, width_for
from utils.device.graph_pool import Tensors
from utils.device.sent import sent
from utils.device.spare import with_room

_CHUNKS = (128, 256, 512)
"""Rows of a prompt that are read at once, to which fewer are filled up."""


class _Group(NamedTuple):
    """Sequences that attend side by side: so many, and rows, rows that not all of them see, and columns of each."""

    sequences: int
    rows: int
    apart: int
    columns: int


class BlockGraphs(SharedGraphs):
    """`SharedGraphs` over rows in blocks, which read prompts as well, up to 512 rows of each at once."""

    _cache: BlockRows

    def can_replay(self, feeds: Sequence[QueryRows]) -> bool:
        """See `SharedGraphs.can_replay`: each is a round, or a part of a prompt."""
        return all(_is_round(feed) or (feed.seen is None and feed.count <= _CHUNKS[-1]) for feed in feeds)

    def reads_prompt(self, feeds: Sequence[QueryRows]) -> bool:
        """See `SharedGraphs.reads_prompt`."""
        return not all(map(_is_round, feeds))

    def replay(
        self, feeds: Sequence[QueryRows], key: Hashable, function: Callable[..., Tensors], *inputs: Tensor
    ) -> Tensors:
        """See `SharedGraphs.replay`."""
        with_room(partial(self._cache.make_room_for, feeds))
        rounds = [number for number, feed in enumerate(feeds) if _is_round(feed)]
        prompts = [number for number, feed in enumerate(feeds) if not _is_round(feed)]
        parts = [numbers for numbers in (rounds, prompts) if numbers]
        groups = tuple(self._group([feeds[number] for number in numbers]) for numbers in parts)
        count, beside = sum(feed.count for feed in feeds), sum(feeds[number].count for number in rounds)
        width = (width_for(beside) if rounds else 0) + (groups[-1].sequences * groups[-1].rows if prompts else 0)
        graph = self._captured.step((groups, key), partial(_in_blocks, self._cache, groups, function))
        ready = [filled(each, width if len(each) == count else width_for(len(each))) for each in inputs]
        return graph(*self._laid_out(feeds, parts, groups, width), *ready)

    def _group(self, feeds: Sequence[QueryRows]) -> _Group:
        """The sizes of the next graph that holds these."""
        rows = _rows_for(max(feed.count for feed in feeds))
        apart = _rows_for(max(feed.count + apart_of(feed) for feed in feeds))
        columns = bucket(max(feed.slot.length for feed in feeds) + apart, self._window + MOST)
        return _Group(1 << (len(feeds) - 1).bit_length(), rows, apart, columns)

    def _laid_out(
        self, feeds: Sequence[QueryRows], parts: Sequence[Sequence[int]], groups: Sequence[_Group], width: int
    ) -> Tensors:
        """Positions `[width]`, and what `BlockRows.lay_out_groups` reads of these feeds, sent at once."""
        device = self._cache.device
        lines, begins, laid = list[QueryRows | None](), dict[int, tuple[int, int]](), 0
        for numbers, group in zip(parts, groups, strict=True):
            begins |= {at: (len(lines) + i, laid + i * group.rows) for i, at in enumerate(numbers)}
            lines += [*(feeds[number] for number in numbers), *[None] * (group.sequences - len(numbers))]
            laid += group.sequences * group.rows
        base = [1 if feed is None else feed.slot.length - apart_of(feed) for feed in lines]
        of, places, at = list[int](), list[int](), list[int]()
        for number, feed in enumerate(feeds):
            line, begin = begins[number]
            of += [line] * feed.count
            places += range(feed.slot.length, feed.slot.length + feed.count)
            at += range(begin, begin + feed.count)
        nothing = [0] * (width - len(of))
        table = self._cache.lines([*lines, None], max(group.columns for group in groups) // self._cache.keys.shape[3])
        rows = *of, *(len(lines) for _ in nothing), *places, *nothing, *at, *(laid for _ in nothing)
        *ours, table_there = sent([*rows, *base, *table], device).split([*[width] * 3, len(base), len(table)])
        seen = [self._seen(lines, group, first) for group, first in zip(groups, _firsts(groups), strict=True)]
        return self._positions(feeds, ours[1]), *ours, table_there.view(len(lines) + 1, -1), *seen

    def _seen(self, lines: Sequence[QueryRows | None], group: _Group, first: int) -> Tensor:
        """Which of the rows apart each row of a group's sequences sees, `[sequences, rows, apart]`."""
        seen = chains(group.sequences, group.rows, group.apart, self._cache.device)
        mine = enumerate(lines[first : first + group.sequences])
        trees = [(line, feed, feed.seen) for line, feed in mine if feed is not None and feed.seen is not None]
        if trees:
            seen = seen.clone()
        for line, feed, saw in trees:
            tail = saw[:, feed.slot.length - apart_of(feed) :]
            seen[line] = False
            seen[line, : feed.count, : tail.shape[1]] = tail
        return seen

    def _positions(self, feeds: Sequence[QueryRows], places: Tensor) -> Tensor:
        """A row of a chain stands where it lies."""
        if all(feed.positions is None for feed in feeds):
            return places
        parts = places.split([*(feed.count for feed in feeds), len(places) - sum(feed.count for feed in feeds)])
        given = [*(feed.positions for feed in feeds), None]
        return torch.cat([part if placed is None else placed for part, placed in zip(parts, given, strict=True)])


def graphs_over(cache: RowsCache, window: int) -> SharedGraphs:
    """Captured forwards over the rows of many sequences; window: of the model whose rows they are."""
    return (BlockGraphs if isinstance(cache, BlockRows) else SharedGraphs)(cache, window)


def _is_round(feed: QueryRows) -> bool:
    return not feed.prompt and feed.count + apart_of(feed) <= MOST


def _rows_for(count: int) -> int:
    return rows_for(count) if count <= MOST else next(rows for rows in _CHUNKS if count <= rows)


def _firsts(groups: Sequence[_Group]) -> list[int]:
    """The line of each group's first sequence."""
    return [sum(group.sequences for group in groups[:number]) for number in range(len(groups))]


def _in_blocks(
    cache: BlockRows,
    groups: Sequence[_Group],
    function: Callable[..., Tensors],
    positions: Tensor,
    of: Tensor,
    places: Tensor,
    at: Tensor,
    base: Tensor,
    table: Tensor,
    *inputs: Tensor,
) -> Tensors:
    """The function over rows that are laid out; nothing is read, and no address changes.

    inputs: what is seen of each group, then the function's.
    """
    seen = zip(inputs[: len(groups)], (group.columns for group in groups), strict=True)
    cache.lay_out_groups(of, places, at, base, table, [*seen])
    return function(positions, *inputs[len(groups) :])
