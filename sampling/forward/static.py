"""A runner whose forwards have fixed shapes and addresses: what a CUDA graph can hold.

Widths up to 17 are fed as they are, so that what they cost can be told apart; wider forwards are filled up. A chain
and a tree of one width share a graph: which row sees which is an input.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.cache import seen_by_branches
from sampling.forward.fixed import FixedCache, Places, additive, seen_by
from sampling.forward.lean import LeanModel
from sampling.forward.runner import Output, Reading, as_ids
from sampling.forward.tree import ancestor_mask, depths
from utils.graphed import Tensors
from utils.sent import moved

EXACT = 17
"""Rows up to which every number of them has a graph of its own."""
_PADDED = (24, 32, 48, 64)


def width_for(count: int) -> int:
    """Rows of the forward that feeds so many: as many, or the next width; those of a prompt are not captured."""
    if count <= EXACT:
        return count
    return next((width for width in _PADDED if count <= width), count)


@lru_cache(maxsize=256)
def _chain(count: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(depth `[width]`, seen `[width, width]`) of rows one behind the other; rows that fill up see themselves alone."""
    seen = torch.eye(width, dtype=torch.bool)
    seen[:count, :count] = torch.ones(count, count, dtype=torch.bool).tril()
    return moved(torch.arange(width).clamp(max=count - 1), device), moved(seen, device)


@lru_cache(maxsize=256)
def _tree(parents: tuple[int, ...], width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same of a root and the drafts that hang off it."""
    count = len(parents) + 1
    seen = torch.eye(width, dtype=torch.bool)
    seen[:count, :count] = ancestor_mask(parents)
    depth = torch.zeros(width, dtype=torch.long)
    depth[:count] = torch.tensor([0, *depths(parents)])
    return moved(depth, device), moved(seen, device)


class StaticRunner:
    """A lean model with a `FixedCache`: see `Runner`. An output holds until the next forward.

    Runners of one model hand caches and graphs on to each other.
    """

    def __init__(self, model: LeanModel, vocab_size: int | None = None, places: Places | None = None) -> None:
        self.model = model
        self.vocab_size = vocab_size or model.vocab_size
        self.window, self.device = model.window, model.device
        most = model.window + _PADDED[-1]  # rows that fill up may stand behind the last real one
        self._places = places or Places(model.num_layers, model.blocks.shape, most, model.device, model.dtype)
        self._place = self._places.take(self)

    def on(self, model: LeanModel) -> "StaticRunner":
        """See `WholeRunner.on`."""
        return StaticRunner(model, self.vocab_size)

    def another(self) -> "StaticRunner":
        """See `WholeRunner.another`."""
        return StaticRunner(self.model, self.vocab_size, self._places)

    @property
    def _cache(self) -> FixedCache:
        return self._place.cache

    @property
    def length(self) -> int:
        """See `Runner.length`."""
        return self._cache.length

    @property
    def capture_s(self) -> float:
        """Seconds that capturing took so far."""
        return self._place.capture_s

    def crop(self, length: int) -> None:
        """See `Runner.crop`."""
        self._cache.crop(length)

    def keep(self, base: int, path: Sequence[int]) -> None:
        """See `Runner.keep`."""
        self._cache.keep(base, path)

    @torch.inference_mode()
    def read(self, prompt: Sequence[int]) -> Reading:
        """See `Runner.read`."""
        self.crop(0)
        return self.model.read(prompt)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`."""
        ids = as_ids(tokens, self.device)
        count = ids.shape[0]
        width = width_for(count)
        told = count if rows is None else rows
        depth, seen = (
            _chain(count, width, self.device) if parents is None else _tree(tuple(parents), width, self.device)
        )
        asked = told if width == count else width if told else 0
        logits, *states = self._call(width, asked, tuple(hidden))(F.pad(ids, (0, width - count)), depth, seen)
        self._cache.advance(count)
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
        self._cache.slots = torch.arange(length, length + count, device=self.device)
        mask = additive(moved(seen, self.device), self.model.dtype)
        logits, _ = self.model.forward(as_ids(tokens, self.device), positions, mask, self._cache, (), count)
        self._cache.advance(count)
        return Output(logits[:, : self.vocab_size])

    def _call(self, width: int, rows: int, hidden: tuple[int, ...]) -> Callable[..., Tensors]:
        """What feeds so many rows: the graph, or for a prompt, whose lengths are many, the step as it is."""
        columns = self._place.columns(width, self._places.most)
        step = partial(_step, self.model, self._cache, columns, rows, hidden)
        return step if width > _PADDED[-1] else self._place.step((columns, rows, hidden), step)


def _step(
    model: LeanModel,
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
    cache.slots = length + torch.arange(ids.shape[0], device=ids.device)
    mask = additive(seen_by(seen, length, columns), model.dtype)
    logits, states = model.forward(ids, length + depth, mask, cache, hidden, rows)
    return logits, *(states[layer] for layer in hidden)
