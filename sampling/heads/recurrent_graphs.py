"""Forwards of a recurrent head with fixed shapes and addresses, for one sequence or many: what a CUDA graph holds."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.fixed import ROOM, CapturedSteps, bucket, columns_over, grow, lay_out_captured
from sampling.forward.caches.rows import RowsCache
from sampling.forward.graphs.sequence_graphs import EXACT
from sampling.forward.graphs.shared_graphs import SharedGraphs
from sampling.heads.inference import RecurrentForward
from utils.device.graph_pool import Tensors
from utils.device.graphed import Graphed
from utils.device.sent import sent

if TYPE_CHECKING:
    from sampling.heads.recurrent_runner import RecurrentFeed


class RecurrentGraphs:
    """Beside `RecurrentRunner`, over the same rows. A chain and a tree share code: which row sees which is an input.

    many: those of many sequences.
    """

    def __init__(self, forward: RecurrentForward, cache: RowsCache) -> None:
        self._forward, self._cache = forward, cache
        self._captured, self.many = CapturedSteps(cache), SharedGraphs(cache, forward.window)

    def can_replay(self, feeds: Sequence["RecurrentFeed"]) -> bool:
        """Whether this is one sequence's, and no prompt: lengths of those are many."""
        return len(feeds) == 1 and len(feeds[0].tokens) <= EXACT

    def replay(self, feed: "RecurrentFeed") -> tuple[Tensor, Tensor]:
        """See `RecurrentRunner.run`."""
        count, rows = len(feed.tokens), feed.slot.length + len(feed.tokens)
        most = max(rows, self._forward.window + EXACT)
        columns = bucket(rows, most)
        grow(self._cache, columns, most, ROOM)
        columns = columns_over(self._cache, columns)
        seen = _causal(count, feed.tokens.device) if feed.seen is None else feed.seen
        base = sent([rows - seen.shape[1]], feed.tokens.device)
        state, logits = self._step(feed.slot.index, columns, feed.wanted)(feed.tokens, feed.above, base, seen)
        return state, logits

    def replay_many(
        self, rows: Sequence[QueryRows], tokens: Tensor, above: Tensor, which: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `RecurrentRunner.run_flat`; which: see `wanted_rows`."""
        count = len(tokens)
        if isinstance(which, int):
            which = torch.arange(count - which, count, device=tokens.device)
        step = partial(_forward_many, self._forward, self._cache)
        state, logits = self.many.replay(rows, "states and logits", step, tokens, above, which)
        return state[:count], logits[: len(which)]

    def _step(self, index: int, columns: int, wanted: int) -> Graphed:
        """The graph of these sizes."""
        step = partial(_forward, self._forward, self._cache, index, columns, wanted)
        return self._captured.step((index, columns, wanted), step)


@lru_cache(maxsize=64)
def _causal(count: int, device: torch.device) -> Tensor:
    """Which of its rows each of a chain sees, `[n, n]`."""
    return torch.ones(count, count, dtype=torch.bool, device=device).tril()


def _forward(
    forward: RecurrentForward,
    cache: RowsCache,
    index: int,
    columns: int,
    wanted: int,
    tokens: Tensor,
    above: Tensor,
    base: Tensor,
    seen: Tensor,
) -> Tensors:
    """(states `[n, H]`, logits of the last `wanted`); nothing is read, and no address changes.

    base: `[1]`, how many rows are seen by all. tokens, above, seen: see `RecurrentFeed`.
    """
    count = len(tokens)
    places = base + (seen.shape[1] - count) + torch.arange(count, device=tokens.device)
    lay_out_captured(cache, index, places, base, seen, columns)
    state = forward.run(tokens, above, base + seen.sum(1) - 1, None, cache)
    return state, forward.logits(state[count - wanted :])


def _forward_many(
    forward: RecurrentForward, cache: RowsCache, positions: Tensor, tokens: Tensor, above: Tensor, which: Tensor
) -> Tensors:
    """(states `[N, H]`, logits of the rows `which`) of rows of many sequences."""
    state = forward.run(tokens, above, positions, None, cache)
    return state, forward.logits(state.index_select(0, which))
