"""Forwards of one sequence with fixed shapes and addresses: what a CUDA graph can hold.

Widths up to 17 are fed as they are, so that what they cost can be told apart; wider forwards are filled up. A chain
and a tree of one width share a graph: which row sees which is an input.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.fixed import CachePool, FixedSlot, lay_out_captured
from sampling.forward.causal_model import Shareable
from sampling.forward.chains_only import chains_only
from sampling.forward.graphs.further import Feed, FurtherForwards
from sampling.forward.requests import StepGenerator
from sampling.forward.tree import laid_out
from utils.device.graph_pool import Tensors
from utils.device.graphed import Graphed
from utils.device.lasting import lasting
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
    made = moved(torch.arange(width).clamp(max=count - 1), device), moved(seen, device)
    if count == width:  # of a width that is filled up there are several, which share a graph
        made = lasting(made[0]), lasting(made[1])
    return made


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
        """See `CausalModel.forward`, of ids `[n]` behind the text, here or on the host.

        Raises `UserError` for a tree where chains run.
        """
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
        count, device = len(ids), self.cache.device
        computed = rows if width == count and not self.whole else width if rows else 0
        depth, seen = chain(count, width, device) if parents is None else laid_out(parents, width, device)
        step = partial(_step, self.model, self.cache, columns, computed, tuple(hidden))
        self.cache.send_length()
        graph = self._captured.step((columns, computed, tuple(hidden)), step, (self.cache.length_there,))
        logits, *states = graph(F.pad(ids, (0, width - count)) if width > count else ids, depth, seen)
        self.cache.counted(width)
        last = logits if computed == rows else logits[count - rows : count]
        return last, {layer: state[:count] for layer, state in zip(hidden, states, strict=True)}

    def graph(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        """A function of fixed shapes, captured with the forwards of this cache; key: what it was made for."""
        return self._captured.step(key, function)

    def further(self, count: int) -> FurtherForwards:
        """So many forwards of one row each, one behind the other, behind the rows that count."""
        cache, columns = self.cache, self.cache.columns(count)
        cache.send_length()
        step = partial(_step, self.model, cache, columns, 1, ())
        feed = partial(_further, step, *chain(1, 1, cache.device))

        def done() -> None:
            cache.counted(count)
            cache.advance(count)

        graph = partial(self._captured.step, changes=(cache.length_there,), copies=True)
        return FurtherForwards((columns, count), graph, self._captured.known, (), feed, done)

    @property
    def known(self) -> dict[Hashable, Any]:
        """See `CapturedSteps`."""
        return self._captured.known

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

    ids, depth: `[n]`, tokens and how far behind the text they stand. seen: `[n, n]` bool, among themselves. The length
    on the device counts the rows afterwards.
    """
    length = cache.length_there
    places = length + torch.arange(ids.shape[0], device=ids.device)
    lay_out_captured(cache.owner, cache.index, places, length, seen, columns)
    logits, states = model.forward(ids, length + depth, None, cache.owner, hidden, rows)
    length.add_(ids.shape[0])
    return logits, *(states[layer] for layer in hidden)


def _further(step: Callable[..., Tensors], depth: Tensor, seen: Tensor) -> Feed:
    """A feed of single rows; depth, seen: of one row."""

    def feed(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
        yield from ()
        return step(tokens, depth, seen)[0]

    return feed
