"""What the sequences of a forward feed, and how they attend: padded side by side, or each by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sampling.forward.cpp.varlen import VarlenAttention
from sampling.forward.kernels.attention import attend_on
from sampling.forward.kernels.batch_invariant import AttentionPattern
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.triton.attention import SplitKeys
from utils.device.sent import sent

if TYPE_CHECKING:
    from sampling.forward.caches.rows_slot import RowsSlot


@dataclass(frozen=True, slots=True)
class QueryRows:
    """What one sequence feeds in a forward: how many rows, and where their drafts hang.

    positions `[n]` and seen `[n, length + n]` bool: of rows that are no chain; None for a chain. shared: rows that all
    of them see, where those are not all that count. gone: rows of the text that the layers no longer have, which
    `seen` then leaves out. prompt: a part of a prompt, which stands behind the rounds of other sequences.
    """

    slot: "RowsSlot"
    count: int
    positions: Tensor | None = None
    seen: Tensor | None = None
    shared: int | None = None
    gone: int = 0
    prompt: bool = False

    @property
    def start(self) -> int:
        """Where the first of them goes."""
        return self.slot.length - self.gone


def wanted_rows(feeds: Sequence[QueryRows], wanted: Sequence[int] | None, device: torch.device) -> int | Tensor:
    """Which of the flat rows are asked for: so many of each feed, from its end; None = all.

    A number where those are the last rows of all.
    """
    counts = [feed.count for feed in feeds]
    if wanted is None or list(wanted) == counts:
        return sum(counts)
    if len(feeds) == 1 or not any(wanted):
        return wanted[0]
    ends = accumulate(counts)
    return sent([row for rows, end in zip(wanted, ends, strict=True) for row in range(end - rows, end)], device)


@dataclass(frozen=True, slots=True)
class PerSequenceAttention:
    """A sequence that attends by itself: its place, its flat rows, how many columns it sees, and through what."""

    index: int
    rows: slice
    columns: int
    mask: Masks | None
    sees: AttentionPattern | None


@dataclass(frozen=True, slots=True)
class PaddedAttention:
    """Sequences that attend side by side, each over the rows and columns of the longest.

    part: their places, one behind the other; those that are fed nothing see one row, which nobody reads. rows: most
    that one of them has. at: `[N]`, where each flat row lies among `part x rows`; None where they are laid out so
    already. mask: additive, `[sequences, 1, group * rows, columns]`; not read where a pattern says what they see.
    """

    part: slice
    rows: int
    columns: int
    at: Tensor | None
    mask: Masks | None
    sees: AttentionPattern | None = None


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Sequences that attend in groups, those of a group side by side; their rows are laid out one group behind another.

    at: `[N]`, where each flat row lies there; behind all of them where nobody reads it. back: the same, but a row that
    is there.
    """

    parts: tuple[PaddedAttention, ...]
    at: Tensor
    back: Tensor


@dataclass(frozen=True, slots=True)
class RoundsAndPrompts:
    """Rounds, the first `rows` flat rows, and parts of prompts behind them, each of which attends by itself."""

    rounds: "PaddedAttention | tuple[PerSequenceAttention, ...]"
    rows: int
    prompts: tuple[PerSequenceAttention, ...]


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """Where the N flat rows of a forward go, `[N * kv_heads]` rows of a layer's buffer, and how they attend.

    rows: `[N]`, where each goes in its own sequence. table: `[S, n]`, the blocks of each sequence, where the buffers
    hold rows in blocks: see `BlockRows`.
    """

    places: Tensor
    attending: "Attending"
    rows: Tensor
    table: Tensor | None = None

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        """Flat rows `[N, heads, D]` on the buffers of all sequences, `[B, kv_heads, capacity, D]`, or on blocks."""
        return _attended(self.attending, query, keys, values, scores, self.table)


Attending = VarlenAttention | PaddedAttention | GroupedAttention | RoundsAndPrompts | tuple[PerSequenceAttention, ...]


def _attended(
    attending: Attending, query: Tensor, keys: Tensor, values: Tensor, scores: Scores, table: Tensor | None
) -> Tensor:
    if isinstance(attending, VarlenAttention):  # which reads the table itself
        return attending.attend(query, keys, values, scores)
    where = keys, values, scores, table
    if isinstance(attending, RoundsAndPrompts):
        rounds = _attended(attending.rounds, query[: attending.rows], *where)
        return torch.cat([rounds, *(_apart(part, query[part.rows], *where) for part in attending.prompts)])
    if isinstance(attending, PaddedAttention):
        return _side_by_side(attending, query, *where)
    if isinstance(attending, GroupedAttention):
        return _in_groups(attending, query, *where)
    parts = [_apart(part, query[part.rows], *where) for part in attending]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _in_groups(
    groups: GroupedAttention, query: Tensor, keys: Tensor, values: Tensor, scores: Scores, table: Tensor | None
) -> Tensor:
    sizes = [(side.part.stop - side.part.start) * side.rows for side in groups.parts]
    laid = query.new_zeros(sum(sizes) + 1, *query.shape[1:]).index_copy_(0, groups.at, query)
    parts = zip(groups.parts, laid[:-1].split(sizes), strict=True)
    outs = [_side_by_side(side, rows, keys, values, scores, table) for side, rows in parts]
    return (outs[0] if len(outs) == 1 else torch.cat(outs)).index_select(0, groups.back)


def _side_by_side(
    side: PaddedAttention, query: Tensor, keys: Tensor, values: Tensor, scores: Scores, table: Tensor | None
) -> Tensor:
    if side.at is not None:
        rows = (side.part.stop - side.part.start) * side.rows
        query = query.new_zeros(rows, *query.shape[1:]).index_copy_(0, side.at, query)
    if table is None:
        keys, values = keys[side.part], values[side.part]
    elif not isinstance(side.sees, SplitKeys):  # which reads the table itself
        lines = table[side.part, : _blocks(side, keys, table)]
        keys, values = in_rows(keys, lines), in_rows(values, lines)
    out = attend_on(query, keys, values, side.columns, side.mask, side.sees, scores)
    return out if side.at is None else out.index_select(0, side.at)


def _apart(
    layout: PerSequenceAttention, query: Tensor, keys: Tensor, values: Tensor, scores: Scores, table: Tensor | None
) -> Tensor:
    place = slice(layout.index, layout.index + 1)
    if table is None:
        keys, values = keys[place], values[place]
    else:
        lines = table[place, : _blocks(layout, keys, table)]
        keys, values = in_rows(keys, lines), in_rows(values, lines)
    return attend_on(query, keys, values, layout.columns, layout.mask, layout.sees, scores)


def _blocks(layout: PaddedAttention | PerSequenceAttention, keys: Tensor, table: Tensor) -> int:
    """How many blocks of a sequence are gathered; a pattern says what it reads, so that it has all."""
    return table.shape[1] if layout.sees is not None else -(-layout.columns // keys.shape[2])


def in_rows(blocks: Tensor, table: Tensor) -> Tensor:
    """The rows of sequences with this table `[S, m]`, of blocks `[blocks, kv_heads, n, D]`: `[S, kv_heads, m n, D]`.

    They are copied.
    """
    kv_heads, rows, dim = blocks.shape[1:]
    gathered = blocks.index_select(0, table.flatten()).view(*table.shape, kv_heads, rows, dim)
    return gathered.transpose(1, 2).flatten(2, 3)


def visible(base: Tensor, seen: Tensor, columns: int) -> Tensor:
    """Which columns each row sees, `[sequences, rows, columns]` bool: see `RowsCache.lay_out_side`."""
    rows, apart = seen.shape[1:]
    behind = torch.arange(columns, device=seen.device) - base.unsqueeze(1)
    rows_seen = seen.gather(2, behind.clamp(0, apart - 1).unsqueeze(1).expand(-1, rows, -1))
    return (behind < 0).unsqueeze(1) | ((behind < apart).unsqueeze(1) & rows_seen)
