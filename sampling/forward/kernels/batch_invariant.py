"""Attention in which a row comes out alike, bit for bit, however many rows are fed with it.

Sums of floating-point numbers depend on their order, and products choose it by their shape and by where their numbers
lie in memory. Here all products have the shape of one row's: a row sees its rows side by side, as many as the next
multiple of `UNIT`, and not as many as another row needs; its query heads are filled up with zeros until the scratch of
every thread begins at a multiple of `_LINE` numbers, or with those of rows that see as many.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from utils.device.sent import sent

UNIT = 16
_PROBED = 528
_LINE = 16  # 64 bytes of float32, to which torch aligns what it allocates


class _Tiles:
    """Tokens one after the other that see as many columns, so many to a product: `[tiles, kv_heads, size, D]` queries.

    The scratch that queries are laid out in serves all layers of a forward; what no token fills stays zero.
    """

    def __init__(self, rows: slice, columns: int, mask: Tensor, heads: "_Heads", tokens: int) -> None:
        count = rows.stop - rows.start
        self._rows, self.columns = rows, columns
        self._tokens = tokens = min(tokens, count)
        tiles, (kv_heads, group, dim, size) = -(-count // tokens), heads
        self._heads = heads
        self.scratch = mask.new_zeros(tiles, kv_heads, size, dim)
        by_token = self.scratch[:, :, : tokens * group].unflatten(2, (tokens, group)).transpose(1, 2)
        whole = count // tokens
        self._places = [(by_token[:whole], slice(rows.start, rows.start + whole * tokens))]
        if whole < tiles:
            left = count - whole * tokens
            self._places.append((by_token[whole:, :left], slice(rows.stop - left, rows.stop)))
        mine = F.pad(mask[rows, :columns], (0, 0, 0, tiles * tokens - count)).repeat_interleave(group, dim=0)
        self.mask = F.pad(mine.view(tiles, 1, tokens * group, columns), (0, 0, 0, size - tokens * group))

    def lay_out(self, query: Tensor) -> Tensor:
        """Its tokens among `[n, kv_heads, group, D]` queries, where `attend` takes them."""
        for place, rows in self._places:
            place.copy_(query[rows].view(place.shape))
        return self.scratch

    def rows_from(self, first: int) -> Tensor:
        """Where each query row of its tokens lies, `[tokens * heads]`, among rows of tiles; `first` are others'.

        Query rows by token, key head and group; rows of tiles by tile, key head and place.
        """
        kv_heads, group, _, size = self._heads
        token = torch.arange(self._rows.stop - self._rows.start, device=self.mask.device)
        tile, place = first + token // self._tokens, token % self._tokens
        heads, inside = (torch.arange(some, device=self.mask.device) for some in (kv_heads, group))
        begin = (tile.view(-1, 1, 1) * kv_heads + heads.view(-1, 1)) * size + place.view(-1, 1, 1) * group
        rows: Tensor = (begin + inside).flatten()
        return rows

    def collect(self, out: Tensor) -> Tensor:
        """`[tiles, kv_heads, size, D]` -> `[tokens, kv_heads * group * D]`."""
        kv_heads, group, dim, _ = self._heads
        used: Tensor = out[:, :, : self._tokens * group]
        if self._tokens == 1:
            return used.reshape(-1, kv_heads * group * dim)
        by_token: Tensor = used.unflatten(2, (self._tokens, group)).transpose(1, 2)
        return by_token.reshape(-1, kv_heads * group * dim)[: self._rows.stop - self._rows.start]


class _Heads(NamedTuple):
    """Key heads, query heads of each, their width, and how many query rows a product has."""

    kv_heads: int
    group: int
    dim: int
    size: int


class CausalSpan:
    """Tokens of which each sees the first rows of a sequence, side by side; `counts` says how many.

    parts: tokens one after the other that see as many columns as each other, and how many.
    """

    def __init__(self, counts: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        columns = [-(-count // UNIT) * UNIT for count in counts]
        self.parts = _runs(columns)
        unseen = torch.arange(max(columns)) >= torch.tensor(counts).unsqueeze(1)
        low = torch.finfo(dtype).min
        self._mask = torch.zeros(unseen.shape, dtype=dtype).masked_fill_(unseen, low).to(device)
        self._tiles: dict[_Heads, list[_Tiles]] = {}

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """`[n, heads, D]` on the rows of a sequence, `[1, kv_heads, capacity, D]` -> `[n, heads * D]`.

        The capacity is a multiple of `UNIT`.
        """
        count, heads, dim = query.shape
        kv_heads = keys.shape[1]
        group = heads // kv_heads
        shape = _Heads(kv_heads, group, dim, _filled(group, dim))
        grouped = query.reshape(count, kv_heads, group, dim)
        rows = [
            tiles.collect(
                _products(
                    tiles.lay_out(grouped),
                    keys.narrow(2, 0, tiles.columns),
                    values.narrow(2, 0, tiles.columns),
                    tiles.mask,
                )
            )
            for tiles in self.cut(shape)
        ]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def cut(self, heads: _Heads) -> list[_Tiles]:
        """The parts as products of these heads."""
        if heads not in self._tiles:
            tokens = heads.size // heads.group if _places_alike(heads.size, heads.dim, self._mask.dtype) else 1
            self._tiles[heads] = [_Tiles(*part, self._mask, heads, tokens) for part in self.parts]
        return self._tiles[heads]


def _products(query: Tensor, known: Tensor, meant: Tensor, mask: Tensor) -> Tensor:
    """Tiles `[tiles, kv_heads, size, D]` over the rows of one sequence, `[1, kv_heads, columns, D]`."""
    count = len(query)
    # One tile on one key head is one product, which threads would share; two are one for each thread.
    batch = 2 if query.shape[:2] == (1, 1) else count
    if batch > 1:
        query, known, meant = (tensor.expand(batch, -1, -1, -1) for tensor in (query, known, meant))
    return F.scaled_dot_product_attention(query, known, meant, attn_mask=mask)[:count]


class _Call(NamedTuple):
    """One product of a sequence among several: whose rows it attends over, its tiles, and what it sees."""

    place: int
    tiles: slice
    columns: int
    mask: Tensor


class _SpanPlan(NamedTuple):
    """Where the query rows of all sequences go, `[N * heads]` rows of a scratch, and the products over them."""

    scratch: Tensor
    places: Tensor
    calls: tuple[_Call, ...]


class CausalSpans:
    """Spans of several sequences side by side: each attends as it does alone, and all are laid out at once.

    chains: each with the place of its sequence in the buffers, in the order of their rows.
    """

    def __init__(self, chains: Sequence[tuple[int, CausalSpan]], device: torch.device) -> None:
        self._chains, self._device = chains, device
        self._plans: dict[_Heads, _SpanPlan] = {}

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See `CausalSpan.attend`; keys and values are those of all sequences, `[B, kv_heads, capacity, D]`."""
        (count, heads, dim), kv_heads = query.shape, keys.shape[1]
        group = heads // kv_heads
        plan = self._plan(_Heads(kv_heads, group, dim, _filled(group, dim)))
        plan.scratch.view(-1, dim).index_copy_(0, plan.places, query.reshape(-1, dim))
        outs = []
        for index, tiles, columns, mask in plan.calls:
            known, meant = (tensor[index : index + 1].narrow(2, 0, columns) for tensor in (keys, values))
            outs.append(_products(plan.scratch[tiles], known, meant, mask))
        return torch.cat(outs).view(-1, dim).index_select(0, plan.places).view(count, heads * dim)

    def _plan(self, heads: _Heads) -> _SpanPlan:
        if heads not in self._plans:
            calls, places, tiles = list[_Call](), list[Tensor](), 0
            for index, chain in self._chains:
                for part in chain.cut(heads):
                    stop = tiles + len(part.scratch)
                    calls.append(_Call(index, slice(tiles, stop), part.columns, part.mask))
                    places.append(part.rows_from(tiles))
                    tiles = stop
            kv_heads, _, dim, size = heads
            scratch = calls[0].mask.new_zeros(tiles, kv_heads, size, dim)
            self._plans[heads] = _SpanPlan(scratch, torch.cat(places), tuple(calls))
        return self._plans[heads]


class _RootToLeafPath(NamedTuple):
    """One way through a tree: the tokens that attend on it, `[m]`, and which rows it moves to the front, `[depth]`."""

    tokens: Tensor
    rows: Tensor
    chain: CausalSpan


class RootToLeafPaths:
    """Tokens of a tree, or of branches: they attend line by line.

    The rows on one way from the root to a leaf are moved side by side behind those that all tokens see, as if they
    alone had been fed, and in the end every row goes back to its place. A line costs what a chain of its tokens costs.
    """

    def __init__(self, seen: Tensor, dtype: torch.dtype) -> None:
        self._start, self._stop = int(seen.all(0).long().cumprod(0).sum()), seen.shape[1]
        ways = [tuple(row.nonzero().flatten().tolist()) for row in seen[:, self._start :].cpu()]
        self._paths = [
            _RootToLeafPath(
                sent(tokens, seen.device),
                sent(ways[tokens[-1]], seen.device),
                CausalSpan([self._start + len(ways[token]) for token in tokens], dtype, seen.device),
            )
            for tokens in _share_paths(ways)
        ]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See `CausalSpan.attend`; the rows lie as they did when it ends."""
        out = query.new_empty(len(query), query.shape[1] * query.shape[2])
        held = [
            (moving, moving.clone()) for moving in (tensor[:, :, self._start : self._stop] for tensor in (keys, values))
        ]
        for tokens, rows, chain in self._paths:
            for moving, before in held:
                torch.index_select(before, 2, rows, out=moving.narrow(2, 0, len(rows)))
            out.index_copy_(0, tokens, chain.attend(query.index_select(0, tokens), keys, values))
        for moving, before in held:
            moving.copy_(before)
        return out


AttentionPattern = CausalSpan | RootToLeafPaths


def attention_pattern(seen: Tensor, dtype: torch.dtype) -> AttentionPattern:
    """Which rows of a sequence n tokens see, `[n, L]` bool; every token sees at least itself."""
    counts = seen.sum(1, keepdim=True)
    if torch.equal(seen, torch.arange(seen.shape[1], device=seen.device) < counts):
        return CausalSpan(counts.flatten().tolist(), dtype, seen.device)
    return RootToLeafPaths(seen, dtype)


def _share_paths(ways: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Tokens on one way each, shortest first: `[(), (1,), (2,), (2, 3)]` -> `[0, 2, 3]`, `[1]`."""
    left = sorted(range(len(ways)), key=lambda token: len(ways[token]))
    while left:
        longest = ways[left[-1]]
        begun = {token for token in left if ways[token] == longest[: len(ways[token])]}
        yield [token for token in left if token in begun]
        left = [token for token in left if token not in begun]


def _runs(columns: Sequence[int]) -> list[tuple[slice, int]]:
    """Equal numbers one after the other: `[16, 16, 32]` -> rows 0 to 2 with 16, row 2 with 32."""
    runs, start = [], 0
    for number, equal in groupby(columns):
        stop = start + len(list(equal))
        runs.append((slice(start, stop), number))
        start = stop
    return runs


@cache
def _filled(group: int, dim: int) -> int:
    """How many query rows a product has, at least a group's: see the module.

    A thread's scratch holds scores, two numbers a row, and results: rows * (columns + 2 + dim).
    """
    rows = group
    while rows * dim % _LINE or rows * (dim + 2) % _LINE:
        rows += 1
    return rows


@cache
def _places_alike(size: int, dim: int, dtype: torch.dtype) -> bool:
    """Whether a query row comes out the same in every place of a product, so that tokens may share one."""
    chance = torch.Generator().manual_seed(0)
    row, rows = (torch.randn(2, count, dim, generator=chance).to(dtype) for count in (1, _PROBED))
    for columns in range(UNIT, _PROBED + 1, _PROBED // 3 // UNIT * UNIT):
        known = rows[:, :columns].unsqueeze(0)
        out = F.scaled_dot_product_attention(row.expand(2, size, dim).unsqueeze(0), known, known.flip(2))
        if not torch.equal(out, out[:, :, :1].expand_as(out)):
            return False
    return True
