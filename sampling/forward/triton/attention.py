"""Attention with split keys, as a pattern of what rows see: the length is read on the device, by the kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.kernels.scores import PLAIN_SCORES, Scores
from sampling.forward.triton.choice import interpreted
from sampling.forward.triton.launch import OPTIONS, Launch, power_of_two

UNSEEN = 1 << 30
"""Further behind than any window."""
_FEW = 17


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """What n rows of S sequences see, in numbers on the device: see `AttentionPattern`.

    length: `[S]`, the rows that all of a sequence's rows see. behind: `[S, n, m]` int32 of the m rows behind those, how
    many of the rows that a token sees lie behind each; `UNSEEN` where it does not see it. counts: `[S, n]` int32, how
    many of the m it sees. A window is what has fewer rows behind it than it is wide: see `Masks`. table: `[S, blocks]`,
    the blocks of each sequence, where keys and values lie in blocks.
    """

    length: Tensor
    behind: Tensor
    counts: Tensor
    table: Tensor | None = None

    @classmethod
    def of(cls, length: Tensor, seen: Tensor, table: Tensor | None = None) -> "SplitKeys":
        """length: `[S]`. seen: `[S, n, m]` bool, which of the m rows behind those each of n rows sees."""
        counted = seen.cumsum(-1, dtype=torch.int32)
        counts = counted[..., -1:]
        return cls(length, (counts - counted).masked_fill_(~seen, UNSEEN), counts.squeeze(-1).contiguous(), table)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores = PLAIN_SCORES) -> Tensor:
        """`[S * n, heads, D]` on `[S, kv_heads, capacity, D]` -> `[S * n, heads * D]`: see `AttentionPattern.attend`.

        With a table, keys and values are `[any, kv_heads, rows of a block, D]`, of which 64 or so many times more are
        in a block. Their last two dimensions lie one row behind the other.
        """
        out = query.new_empty(query.shape)
        for launch in self.launches(query, keys, values, scores, out):
            launch.run()
        return out.flatten(1)

    def launches(
        self, query: Tensor, keys: Tensor, values: Tensor, scores: Scores, out: Tensor
    ) -> tuple[Launch, Launch]:
        """The two kernels that fill `out`, `[S * n, heads, D]`."""
        from sampling.forward.triton.attention_kernels import attend_part, join_parts

        kv_heads, capacity, dim = keys.shape[1:]
        sequences, rows, fed = self.behind.shape
        block, line = 0, 0  # rows of a block, and how far a line of the table is from the next
        if self.table is not None:
            block, line, capacity = capacity, self.table.stride(0), capacity * self.table.shape[1]
        group = query.shape[1] // kv_heads
        part = columns_of_a_part(rows)
        parts, used = -(-capacity // part), rows * group
        sums = query.new_empty(sequences, kv_heads, parts, used, dim, dtype=torch.float32)
        largest = query.new_empty(sequences, kv_heads, parts, used, dtype=torch.float32)
        weights = torch.empty_like(largest)
        window = UNSEEN if scores.window is None else scores.window
        scale = dim**-0.5 if scores.scale is None else scores.scale
        sizes = {"KV_HEADS": kv_heads, "GROUP": group, "DIM": dim, "WIDE": power_of_two(dim), "PART": part}
        tiles = _tiles(used, sizes["WIDE"], query.element_size())
        table = self.length if self.table is None else self.table
        tensors = query, keys, values, table, self.length, self.behind, self.counts, sums, largest, weights
        strides = *query.stride()[:2], *keys.stride()[:2]
        attending = Launch(
            attend_part,
            (parts, -(-used // tiles["TILE"]), sequences * kv_heads),
            (*tensors, scale, scores.cap or 1.0, rows, fed, window, capacity, line, *strides),
            {**sizes, **tiles, "BLOCK": block, "CAPPED": scores.cap is not None, "WIDENED": interpreted(), **OPTIONS},
        )
        sinks = sums if scores.sinks is None else scores.sinks
        joining = Launch(
            join_parts,
            (sequences * rows, query.shape[1]),
            (sums, largest, weights, self.length, sinks, out, rows, fed, window, parts),
            {**sizes, "AT_ONCE": 16, "SINKS": scores.sinks is not None, **OPTIONS},
        )
        return attending, joining


def columns_of_a_part(rows: int) -> int:
    """Columns that a program attends over: more where rows are many, as it writes down something for each of them."""
    return 256 if rows <= _FEW else 1024


def _tiles(used: int, wide: int, bytes_each: int) -> dict[str, int]:
    """Sizes for so many query rows that fit into the registers and the shared memory of a card.

    The tests marked `triton` compile them, and see that nothing is spilled.
    """
    if bytes_each == 4:
        tile = min(32 if wide <= 64 else 16, power_of_two(used))
        return {"TILE": tile, "STEP": 16, "num_warps": 4}
    tile = min(64 if wide <= 128 else 32, power_of_two(used))
    large = tile * wide
    return {
        "TILE": tile,
        "STEP": 32 if large > 64 * 64 or wide > 128 else 64,
        "num_warps": 8 if tile > 16 and large >= 64 * 64 else 4,
    }
