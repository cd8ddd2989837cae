"""A runner whose forwards have fixed shapes and addresses: what a CUDA graph can hold.

Widths up to 17 are fed as they are, so that what they cost can be told apart; wider forwards are filled up. A chain
and a tree of one width share a graph: which row sees which is an input.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cache import Rows, additive, seen_by_branches
from sampling.forward.fixed import FixedCache, Places, seen_by
from sampling.forward.runner import CachedRunner, CausalModel, Output, as_ids, chains_only
from sampling.forward.tree import seen_in_tree
from utils.graphed import Graphed, Tensors
from utils.sent import moved


class Fixable(CausalModel, Protocol):
    """A model whose forward runs over a `FixedCache` as well."""

    def places(self, most: int) -> Places:
        """Caches for sequences of at most so many rows."""
        ...

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: Any, hidden: Sequence[int], rows: int
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`; over such a cache the mask is `[n, columns]`."""
        ...


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
    """A model with a `FixedCache`: see `Runner`. An output holds until the next forward.

    Runners of one model hand caches and graphs on to each other.
    """

    fixed_shapes = True

    def __init__(self, model: Fixable, vocab_size: int | None = None, places: Places | None = None) -> None:
        super().__init__(model, vocab_size)
        self.model = model
        most = model.window + _PADDED[-1]  # rows that fill up may stand behind the last real one
        self._places = places or model.places(most)
        self._place = self._places.take(self)

    def on(self, model: CausalModel) -> "StaticRunner":
        """See `WholeRunner.on`."""
        return StaticRunner(cast(Fixable, model), self.vocab_size)

    def another(self) -> "StaticRunner":
        """See `WholeRunner.another`."""
        return StaticRunner(self.model, self.vocab_size, self._places)

    @property
    def cache(self) -> FixedCache:
        """See `CachedRunner.cache`; another one once there was no room."""
        return self._place.cache

    @torch.inference_mode()
    def adopt(self, rows: Mapping[int, Rows], count: int) -> None:
        """See `Keeping.adopt`."""
        self.crop(0)
        self._place.columns(count, self._places.most)
        self.cache.fill(rows, count)

    @property
    def capture_s(self) -> float:
        """Seconds that capturing took so far."""
        return self._place.capture_s

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
        columns = self._place.columns(count, self._places.most)
        seen = F.pad(seen_by_branches(length, base, lines), (0, columns - length - count))
        positions = torch.full((count,), base + lines.shape[1], device=self.device)
        self.cache.slots, self.cache.columns = torch.arange(length, length + count, device=self.device), columns
        mask = additive(moved(seen, self.device), self.model.dtype)
        logits, _ = self.model.forward(as_ids(tokens, self.device), positions, mask, self.cache, (), count)
        self.cache.advance(count)
        return Output(logits[:, : self.vocab_size])

    @property
    def graphs(self) -> Collection[Graphed]:
        """All functions that were made into graphs here."""
        return self._place.steps.values()

    def graph(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        """Another function of fixed shapes, captured with the forwards of this place; key: what it was made for."""
        return self._place.step(key, function)

    def _call(self, width: int, rows: int, hidden: tuple[int, ...]) -> Callable[..., Tensors]:
        """What feeds so many rows: the graph, or for a prompt, whose lengths are many, the step as it is."""
        columns = self._place.columns(width, self._places.most)
        step = partial(_step, self.model, self.cache, columns, rows, hidden)
        return step if width > _PADDED[-1] else self._place.step((columns, rows, hidden), step)


def _step(
    model: Fixable,
    cache: FixedCache,
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
    cache.slots, cache.columns = length + torch.arange(ids.shape[0], device=ids.device), columns
    mask = additive(seen_by(seen, length, columns), model.dtype)
    logits, states = model.forward(ids, length + depth, mask, cache, hidden, rows)
    return logits, *(states[layer] for layer in hidden)
