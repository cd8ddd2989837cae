"""A runner whose forwards have fixed shapes and addresses: what a CUDA graph can hold.

Widths up to 17 are fed as they are, so that what they cost can be told apart; wider forwards are filled up. A chain
and a tree of one width share a graph: which row sees which is an input.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.cache import Rows, additive, seen_by_branches
from sampling.forward.caches.fixed import CachePool, FixedSlot, seen_by
from sampling.forward.runner import CachedRunner, CausalModel, Output, as_ids, chains_only
from sampling.forward.sharing import Shareable
from sampling.forward.tree import seen_in_tree
from utils.device.graphed import Graphed, Tensors
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


class StaticRunner(CachedRunner):
    """A model with a `CacheSlot`: see `Runner`. An output holds until the next forward.

    Runners of one model hand caches and graphs on to each other.
    """

    fixed_shapes = True

    def __init__(self, model: Shareable, vocab_size: int | None = None, pool: CachePool | None = None) -> None:
        super().__init__(model, vocab_size)
        self.model = model
        most = model.window + _PADDED[-1]  # rows that fill up may stand behind the last real one
        self._pool = pool or CachePool(model.rows_cache, most)
        self._slot = self._pool.take(self)

    def on(self, model: CausalModel) -> "StaticRunner":
        """See `WholeRunner.on`."""
        return StaticRunner(cast(Shareable, model), self.vocab_size)

    def another(self) -> "StaticRunner":
        """See `WholeRunner.another`."""
        return StaticRunner(self.model, self.vocab_size, self._pool)

    @property
    def cache(self) -> FixedSlot:
        """See `CachedRunner.cache`."""
        return self._slot.cache

    @torch.inference_mode()
    def adopt(self, rows: Mapping[int, Rows], count: int) -> None:
        """See `Keeping.adopt`."""
        self.crop(0)
        self._slot.columns(count)
        self.cache.fill(rows, count)

    @property
    def capture_s(self) -> float:
        """Seconds that capturing took so far."""
        return self._slot.capture_s

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`."""
        if parents is not None and not self.model.trees:
            raise chains_only(self.model)
        ids = as_ids(tokens, self.device)
        count = ids.shape[0]
        width = width_for(count)
        told = count if rows is None else rows
        depth, seen = chain(count, width, self.device) if parents is None else _tree(parents, width, self.device)
        asked = told if width == count else width if told else 0
        logits, *states = self._call(width, asked, tuple(hidden))(F.pad(ids, (0, width - count)), depth, seen)
        self.cache.advance(count)
        last = logits if asked == told else logits[count - told : count]
        return Output(
            last[:, : self.vocab_size],
            {layer: state[:count] for layer, state in zip(hidden, states, strict=True)},
        )

    @torch.inference_mode()
    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """See `Runner.fork`."""
        count, length = len(tokens), self.length
        columns = self._slot.columns(count)
        seen = F.pad(seen_by_branches(length, base, lines), (0, columns - length - count))
        positions = torch.full((count,), base + lines.shape[1], device=self.device)
        rows = torch.arange(length, length + count, device=self.device)
        self.cache.lay_out_rows(rows, additive(moved(seen, self.device), self.model.dtype))
        logits, _ = self.model.forward(as_ids(tokens, self.device), positions, None, self.cache.owner, (), count)
        self.cache.advance(count)
        return Output(logits[:, : self.vocab_size])

    @property
    def graphs(self) -> Collection[Graphed]:
        """All functions that were made into graphs here."""
        return self._slot.steps.values()

    def graph(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        """Another function of fixed shapes, captured with the forwards of this slot; key: what it was made for."""
        return self._slot.step(key, function)

    def _call(self, width: int, rows: int, hidden: tuple[int, ...]) -> Callable[..., Tensors]:
        """What feeds so many rows: the graph, or for a prompt, whose lengths are many, the step as it is."""
        columns = self._slot.columns(width)
        step = partial(_step, self.model, self.cache, columns, rows, hidden)
        return step if width > _PADDED[-1] else self._slot.step((columns, rows, hidden), step)


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
    mask = additive(seen_by(seen, length, columns), model.dtype)
    cache.lay_out_rows(length + torch.arange(ids.shape[0], device=ids.device), mask)
    logits, states = model.forward(ids, length + depth, None, cache.owner, hidden, rows)
    return logits, *(states[layer] for layer in hidden)
