"""Attention in which a row comes out alike, bit for bit, however many rows are fed with it.

The sum of floating-point numbers depends on their order, and a product chooses the order by its shape. torch attends 32
query rows to 512 columns at a time. Whatever is left over has a shape of its own. Some sizes of it give every row
the bits that it has in a whole one, columns that a row does not see being zeros: which they are is tried, once for each
number format, and what is left over is filled up to the next of them.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.kernels.scores import PLAIN_SCORES, Scores, explicit_attention
from utils.device.sent import sent

COLUMNS = 512
_ROWS = 32
_UNIT = 16


class AttentionPattern(Protocol):
    """Which rows of the buffers n tokens see."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores = PLAIN_SCORES) -> Tensor:
        """`[S * n, heads, D]` on buffers of S sequences, `[S, kv_heads, capacity, D]` -> `[S * n, heads * D]`.

        There is room for as many columns as `columns_for` says.
        """
        ...


class _Sizes(NamedTuple):
    """Numbers of query rows, up to 32, and of columns, up to 512, that give every row the same bits."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


class _Heads(NamedTuple):
    """Query heads, key heads and their width."""

    heads: int
    kv_heads: int
    dim: int


class _Folded:
    """The query rows of n tokens of S sequences as products take them, `[S, kv_heads, rows, D]`, and what they see.

    The heads of a group lie below each other, n rows each; zeros fill up the rows.
    """

    def __init__(self, mask: Tensor, heads: _Heads) -> None:
        sequences, count, self.columns = mask.shape
        group = heads.heads // heads.kv_heads
        self._by_token = sequences, count, heads.kv_heads, group, heads.dim
        self._used = used = group * count
        rows = _filled(used, _sizes(mask.dtype, heads.dim).rows)
        self.mask = F.pad(mask.repeat(1, group, 1), (0, 0, 0, rows - used)).unsqueeze(1)
        self._scratch = mask.new_zeros(sequences, heads.kv_heads, rows, heads.dim)
        self._place = (
            self._scratch[:, :, :used].view(sequences, heads.kv_heads, group, count, heads.dim).permute(0, 3, 1, 2, 4)
        )

    def lay_out(self, query: Tensor) -> Tensor:
        """`[S * n, heads, D]` as products take them, good until the next call."""
        self._place.copy_(query.view(self._by_token))
        return self._scratch

    def collect(self, out: Tensor) -> Tensor:
        """`[S, kv_heads, rows, D]` -> `[S * n, heads * D]`."""
        sequences, count, kv_heads, group, _ = self._by_token
        by_head = out.narrow(2, 0, self._used).reshape(sequences, kv_heads, group, count, -1)
        return by_head.permute(0, 3, 1, 2, 4).reshape(sequences * count, -1)


class CausalRows:
    """Tokens that each see the first columns of their sequence; counts: how many, `[S, n]`."""

    def __init__(self, counts: Tensor, dtype: torch.dtype) -> None:
        self._counts, self._dtype, self._most = counts, dtype, int(counts.max())
        self._folded: dict[tuple[_Heads, int | None], _Folded] = {}

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores = PLAIN_SCORES) -> Tensor:
        """See `AttentionPattern.attend`."""
        if not scores.fused:
            return self._one_by_one(query, keys, values, scores)
        key = _Heads(query.shape[1], keys.shape[1], query.shape[2]), scores.window
        if key not in self._folded:
            self._folded[key] = self._fold(*key)
        folded = self._folded[key]
        keys, values = keys.narrow(2, 0, folded.columns), values.narrow(2, 0, folded.columns)
        return folded.collect(_attended(folded.lay_out(query), keys, values, folded.mask, scores.scale))

    def _fold(self, heads: _Heads, window: int | None) -> _Folded:
        columns = torch.arange(columns_for(self._most, self._dtype, heads.dim), device=self._counts.device)
        counts = self._counts.unsqueeze(-1)
        unseen = columns >= counts
        if window is not None:
            unseen |= columns < counts - window
        mask = torch.zeros(unseen.shape, dtype=self._dtype, device=unseen.device)
        return _Folded(mask.masked_fill_(unseen, torch.finfo(self._dtype).min), heads)

    def _one_by_one(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        """Each token over the columns that it sees and no others, as it attends alone."""
        sequences, count = self._counts.shape
        folded = query.view(sequences, count, keys.shape[1], -1, query.shape[2])
        out = query.new_empty(sequences, count, query.shape[1] * values.shape[-1])
        for sequence, counts in enumerate(self._counts.tolist()):
            for row, stop in enumerate(counts):
                start = scores.first(stop)
                known, meant = (part[sequence : sequence + 1, :, start:stop] for part in (keys, values))
                token = folded[sequence, row].unsqueeze(0)
                out[sequence, row] = explicit_attention(token, known, meant, None, scores).flatten()
        return out.flatten(0, 1)


class _RootToLeafPath(NamedTuple):
    """One way through a tree: the tokens that attend on it, `[m]`, and which rows it moves to the front, `[depth]`."""

    tokens: Tensor
    rows: Tensor
    chain: CausalRows


class RootToLeafPaths:
    """Tokens of a tree, or of branches, of one sequence: they attend line by line.

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
                CausalRows(sent([self._start + len(ways[token]) for token in tokens], seen.device).unsqueeze(0), dtype),
            )
            for tokens in _share_paths(ways)
        ]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores = PLAIN_SCORES) -> Tensor:
        """See `AttentionPattern.attend`; the rows lie as they did when it ends."""
        out = query.new_empty(len(query), query.shape[1] * values.shape[-1])
        held = [
            (moving, moving.clone()) for moving in (tensor[:, :, self._start : self._stop] for tensor in (keys, values))
        ]
        for tokens, rows, chain in self._paths:
            for moving, before in held:
                torch.index_select(before, 2, rows, out=moving.narrow(2, 0, len(rows)))
            out.index_copy_(0, tokens, chain.attend(query.index_select(0, tokens), keys, values, scores))
        for moving, before in held:
            moving.copy_(before)
        return out


def attention_pattern(seen: Tensor, dtype: torch.dtype) -> AttentionPattern:
    """Which rows of a sequence n tokens see, `[n, L]` bool; every token sees at least itself."""
    counts = seen.sum(1, keepdim=True)
    if torch.equal(seen, torch.arange(seen.shape[1], device=seen.device) < counts):
        return CausalRows(counts.view(1, -1), dtype)
    return RootToLeafPaths(seen, dtype)


def columns_for(count: int, dtype: torch.dtype, dim: int) -> int:
    """Over how many columns rows attend that see so many."""
    return _filled(count, _sizes(dtype, dim).columns)


def _filled(count: int, sizes: Sequence[int]) -> int:
    """`count` with what is left over a multiple of the largest size filled up to the next size."""
    left = count % sizes[-1]
    return count - left + next((size for size in sizes if size >= left), 0) if left else count


def _attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """`[S, kv_heads, rows, D]` on `[S, kv_heads, columns, D]`."""
    if query.shape[:2] == (1, 1):  # threads would share one product; two are one for each thread
        query, keys, values = (tensor.expand(2, -1, -1, -1) for tensor in (query, keys, values))
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)[:1]
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)


@cache
@torch.inference_mode()
def _sizes(dtype: torch.dtype, dim: int) -> _Sizes:
    """Which sizes of what is left over give a row the bits that it has in 32 rows on 512 columns."""
    whole = [(trial, _tried(trial, COLUMNS)) for trial in _trials(dtype, dim, COLUMNS)]
    rows = [
        count
        for count in range(1, _ROWS)
        if all(torch.equal(_tried(trial.last(count), COLUMNS), out[:, :, -count:]) for trial, out in whole)
    ]
    rows.append(_ROWS)
    columns = [
        count
        for count in range(_UNIT, COLUMNS, _UNIT)
        if all(
            torch.equal(_tried(trial, count), _tried(trial, COLUMNS))
            for some in _trials(dtype, dim, count)
            for trial in (some, some.last(rows[0]))
        )
    ]
    return _Sizes(tuple(rows), (*columns, COLUMNS))


class _Trial(NamedTuple):
    """Query rows `[1, 2, 32, D]`, keys and values `[1, 2, 512, D]`, and how many columns are seen."""

    query: Tensor
    keys: Tensor
    values: Tensor
    seen: int

    def last(self, rows: int) -> "_Trial":
        """The same of the last rows alone."""
        return self._replace(query=self.query[:, :, -rows:])


def _trials(dtype: torch.dtype, dim: int, seen: int) -> tuple[_Trial, _Trial]:
    """Sums that are exactly zero: rounding is all that comes out, and any other order of a sum shows, in any format.

    In the first those of the values, as all scores are zero; in the second those of the scores, of large numbers.
    """
    chance = torch.Generator().manual_seed(0)
    loud = 2.0**30 if dtype == torch.float64 else 1.0

    def drawn(*shape: int, powers: int = 13) -> Tensor:
        """Of all sizes up to a power of two, so that sums of numbers of few digits are rounded."""
        sizes = 2.0 ** torch.randint(0, powers, (1, 2, *shape), generator=chance)
        return (torch.randn(1, 2, *shape, generator=chance) * sizes).to(dtype)

    def undone(first: Tensor, sign: float, along: int, order: Tensor, size: int) -> Tensor:
        """The numbers, then the same in another order with this sign, then zeros."""
        both = torch.cat([first, sign * first.index_select(along, order)], along)
        return F.pad(both, (0, 0, 0, size - both.shape[2]) if along == 2 else (0, size - both.shape[3]))

    mixed, crossed = (torch.randperm(size // 2, generator=chance) for size in (seen, dim))
    values = undone(drawn(seen // 2, dim), -1.0, 2, mixed, COLUMNS)
    silent = _Trial(values.new_zeros(1, 2, _ROWS, dim), drawn(COLUMNS, dim), values, seen)
    query = undone(drawn(_ROWS, dim // 2, powers=10), 1.0, 3, crossed, dim)
    keys = undone(drawn(COLUMNS, dim // 2, powers=10), -1.0, 3, crossed, dim)
    return silent, _Trial(loud * query, keys, drawn(COLUMNS, dim), seen)


def _tried(trial: _Trial, columns: int) -> Tensor:
    query, keys, values, seen = trial
    mask = query.new_zeros(query.shape[2], columns)
    mask[:, seen:] = torch.finfo(query.dtype).min
    return _attended(query, keys[:, :, :columns], values[:, :, :columns], mask)


def _share_paths(ways: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Tokens on one way each, shortest first: `[(), (1,), (2,), (2, 3)]` -> `[0, 2, 3]`, `[1]`."""
    left = sorted(range(len(ways)), key=lambda token: len(ways[token]))
    while left:
        longest = ways[left[-1]]
        begun = {token for token in left if ways[token] == longest[: len(ways[token])]}
        yield [token for token in left if token in begun]
        left = [token for token in left if token not in begun]
