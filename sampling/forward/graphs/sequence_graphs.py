"""Forwards of one sequence with fixed shapes and addresses: what a CUDA graph can hold.

Widths up to 17 are fed as they are, so that what they cost can be told apart; wider forwards are filled up. A chain
and a tree of one width share a graph: which row sees which is an input.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.fixed import CachePool, FixedSlot, lay_out_captured
from sampling.forward.causal_model import Shareable
from sampling.forward.chains_only import chains_only
from sampling.forward.tree import seen_in_tree
from utils.device.graph_pool import Tensors
from utils.device.graphed import Graphed
from utils.device.sent import moved

EXACT = 17
"""Rows up to which every number of them has a graph of its own."""
_PADDED = (24, 32, 48, 64)


def width_for(count: int) -> int:
    """Rows of the forward that feeds so many: as many, or the next width; those of a prompt are not captured."""
    if count <= EXACT:
        return count
    return next((width for width in _PADDED if count <= width), count)


@lru_cache(maxsize=256)
def chain(count: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(depth `[width]`, seen `[width, width]`) of rows one behind the other; rows that fill up see themselves alone."""
    seen = torch.eye(width, dtype=torch.bool)
    seen[:count, :count] = torch.ones(count, count, dtype=torch.bool).tril()
    return moved(torch.arange(width).clamp(max=count - 1), device), moved(seen, device)


def _tree(parents: Sequence[int], width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same of a root and the drafts that hang off it."""
    count = len(parents) + 1
    seen = F.pad(seen_in_tree(parents, device), (0, width - count, 0, width - count))
    depth = (seen.sum(1) - 1).clamp(min=0)
    return depth, seen | torch.eye(width, dtype=torch.bool, device=device)


class SequenceGraphs:
    """Forwards of one sequence as graphs. What they return holds until the next forward.

    Those of one model hand caches and graphs on to each other. whole: logits are computed of all rows or of none, so
    that the output matrix, too, meets as many rows in every forward, and no row of the cache is dropped.
    """

    whole = False

    def __init__(self, model: Shareable, pool: CachePool | None = None) -> None:
        self.model = model
        self._most = model.window + _PADDED[-1]  # rows that fill up may stand behind the last real one
        self._pool = pool or CachePool(partial(model.rows_cache, self.whole), self._most)
        self.cache, self._captured = self._pool.take(self)

    def another(self) -> Self:
        """Those of one more sequence."""
        return type(self)(self.model, self._pool)

    def of(self, model: Shareable) -> Self:
        """The same for another model."""
        return type(self)(model)

    def can_replay(self, count: int) -> bool:
        """Whether a forward of so many rows is captured: those of prompts, whose lengths are many, are not."""
        return count <= _PADDED[-1]

    def replay(
        self, ids: Tensor, parents: Sequence[int] | None, hidden: Sequence[int], rows: int
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`, of ids `[n]` behind the text. Raises `UserError` for a tree where chains run."""
        if parents is not None and not self.model.trees:
            raise chains_only(self.model)
        width = width_for(len(ids))
        return self._replay(ids, parents, hidden, rows, width, self.cache.columns(width))

    def _replay(
        self,
        ids: Tensor,
        parents: Sequence[int] | None,
        hidden: Sequence[int],
        rows: int,
        width: int,
        columns: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """`replay` in a forward of so many rows and columns."""
        count = len(ids)
        computed = rows if width == count and not self.whole else width if rows else 0
        depth, seen = chain(count, width, ids.device) if parents is None else _tree(parents, width, ids.device)
        step = partial(_step, self.model, self.cache, columns, computed, tuple(hidden))
        graph = self.graph((columns, computed, tuple(hidden)), step)
        logits, *states = graph(F.pad(ids, (0, width - count)), depth, seen)
        last = logits if computed == rows else logits[count - rows : count]
        return last, {layer: state[:count] for layer, state in zip(hidden, states, strict=True)}

    def graph(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        """A function of fixed shapes, captured with the forwards of this cache; key: what it was made for."""
        return self._captured.step(key, function)

    @property
    def reasons(self) -> list[str]:
        """Why some could not be captured."""
        return self._captured.reasons


def _step(
    model: Shareable,
    cache: FixedSlot,
    columns: int,
    rows: int,
    hidden: tuple[int, ...],
    ids: Tensor,
    depth: Tensor,
    seen: Tensor,
) -> Tensors:
    """(logits of the last `rows`, states of each asked layer); nothing is read, and no address changes.

    ids, depth: `[n]`, tokens and how far behind the text they stand. seen: `[n, n]` bool, among themselves.
    """
    length = cache.length_there
    places = length + torch.arange(ids.shape[0], device=ids.device)
    lay_out_captured(cache.owner, cache.index, places, length, seen, columns)
    logits, states = model.forward(ids, length + depth, None, cache.owner, hidden, rows)
    return logits, *(states[layer] for layer in hidden)
