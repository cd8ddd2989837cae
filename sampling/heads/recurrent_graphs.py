"""Forwards of a recurrent head with fixed shapes and addresses, for one sequence: what a CUDA graph can hold."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sampling.forward.caches.fixed import ROOM, CapturedSteps, bucket, columns_over, grow, lay_out_captured
from sampling.forward.caches.rows import RowsCache
from sampling.forward.graphs.sequence_graphs import EXACT
from sampling.heads.inference import RecurrentForward
from utils.device.graph_pool import Tensors
from utils.device.graphed import Graphed
from utils.device.sent import sent

if TYPE_CHECKING:
    from sampling.heads.recurrent_runner import RecurrentFeed


class RecurrentGraphs:
    """Beside `RecurrentRunner`, over the same rows. A chain and a tree share code: which row sees which is an input."""

    def __init__(self, forward: RecurrentForward, cache: RowsCache) -> None:
        self._forward, self._cache = forward, cache
        self._captured = CapturedSteps(cache)

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
