"""Forwards of many sequences with fixed shapes and addresses: what a CUDA graph can hold.

Rows in all, rows of a sequence, sequences and columns are each filled up to the next of a few sizes. Rows that fill up
belong to a sequence that nobody reads, which has the first place.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import AttentionMetadata, PaddedAttention
from sampling.forward.caches.cache import additive
from sampling.forward.caches.fixed import BUCKET
from sampling.forward.caches.rows import RowsCache
from sampling.forward.graphs.static import width_for
from sampling.forward.runner import Output
from sampling.forward.sharing import Feed, Shareable, SharedRunner
from utils.device.graphed import Graphed, Tensors
from utils.device.sent import sent

_MOST = 64
"""Rows of a sequence from which on a forward reads a prompt: lengths of those are many, and none is captured."""
_STEP = 64


class StaticShared(SharedRunner):
    """See `SharedRunner`. A chain and a tree of one size share a graph: which row sees which is an input."""

    def __init__(self, model: Shareable, vocab_size: int | None = None) -> None:
        super().__init__(model, vocab_size)
        self._filler = self.another()
        self._steps: dict[Hashable, Graphed] = {}
        self._address = 0

    @property
    def shapes(self) -> int:
        """How many were captured, or called where nothing is."""
        return sum(step.shapes for step in self._steps.values())

    @torch.inference_mode()
    def run(self, feeds: Sequence[Feed]) -> list[Output]:
        """See `Shared.run`."""
        most = max(one.fed.count for one in feeds)
        if most > _MOST:
            return self.flat(feeds)
        count, rows = sum(one.fed.count for one in feeds), width_for(most)
        columns = -(-(max(one.fed.slot.length for one in feeds) + rows) // BUCKET) * BUCKET
        self.cache.make_room(columns)
        hidden = tuple(sorted({layer for one in feeds for layer in one.hidden}))
        step = self._step(_sequences(feeds, self.cache), rows, columns, hidden)
        logits, *states = step(*self._inputs(feeds, _width(count), _sequences(feeds, self.cache), rows))
        outputs, stops = list[Output](), accumulate(one.fed.count for one in feeds)
        for one, stop in zip(feeds, stops, strict=True):
            one.fed.slot.advance(one.fed.count)
            own = {
                layer: state[stop - one.fed.count : stop]
                for layer, state in zip(hidden, states, strict=True)
                if layer in one.hidden
            }
            outputs.append(Output(logits[stop - one.rows : stop, : self.vocab_size], own))
        return outputs

    def _step(self, sequences: int, rows: int, columns: int, hidden: tuple[int, ...]) -> Graphed:
        """The graph of these sizes; when the cache grew all are made anew, for they know the old addresses."""
        if self.cache.keys.data_ptr() != self._address:
            self._steps.clear()
            self._address = self.cache.keys.data_ptr()
        key = sequences, rows, columns, hidden
        if key not in self._steps:
            step = partial(_forward, self.model, self.cache, rows, columns, hidden)
            self._steps[key] = Graphed(step, self.device)
        return self._steps[key]

    def _inputs(self, feeds: Sequence[Feed], width: int, sequences: int, rows: int) -> Tensors:
        """What `_forward` reads of these feeds."""
        base, of, places, at = [1] * sequences, list[int](), list[int](), list[int]()
        for one in feeds:
            index, start = one.fed.slot.index, one.fed.slot.length
            base[index] = start
            of += [index] * one.fed.count
            places += range(start, start + one.fed.count)
            at += range(index * rows, index * rows + one.fed.count)
        filling = [0] * (width - len(of))
        flat = sent([*of, *filling, *places, *filling, *at, *filling, *base], self.device)
        of_there, places_there, at_there, base_there = flat.split([width, width, width, sequences])
        positions, seen = places_there, _chains(sequences, rows, self.device)
        if any(one.fed.seen is not None for one in feeds):
            parts = places_there.split([*(one.fed.count for one in feeds), len(filling)])
            given = [*(one.fed.positions for one in feeds), None]
            positions = torch.cat([part if own is None else own for part, own in zip(parts, given, strict=True)])
            seen = seen.clone()
            for fed in (one.fed for one in feeds):
                if fed.seen is not None:
                    seen[fed.slot.index, : fed.count, : fed.count] = fed.seen[:, fed.slot.length :]
        ids = F.pad(torch.cat([one.ids for one in feeds]), (0, len(filling)))
        return ids, of_there, places_there, positions, at_there, base_there, seen


def _width(count: int) -> int:
    """Rows in all of the forward that feeds so many."""
    width = width_for(count)
    return width if width <= _STEP else -(-width // _STEP) * _STEP


def _sequences(feeds: Sequence[Feed], cache: RowsCache) -> int:
    """Sequences of the forward that feeds these: a power of two, or all that have a place."""
    needed = 1 + max(one.fed.slot.index for one in feeds)
    return min(1 << (needed - 1).bit_length(), cache.keys.shape[1])


@lru_cache(maxsize=64)
def _chains(sequences: int, rows: int, device: torch.device) -> Tensor:
    """Which of its own rows each sees where all are chains, `[sequences, rows, rows]`."""
    return torch.ones(rows, rows, dtype=torch.bool, device=device).tril().expand(sequences, -1, -1).contiguous()


def _forward(
    model: Shareable,
    cache: RowsCache,
    rows: int,
    columns: int,
    hidden: tuple[int, ...],
    ids: Tensor,
    of: Tensor,
    places: Tensor,
    positions: Tensor,
    at: Tensor,
    base: Tensor,
    seen: Tensor,
) -> Tensors:
    """(logits of all rows, states of each asked layer); nothing is read, and no address changes.

    ids, positions: `[N]`. of, places: `[N]`, whose each row is and where it goes there. at: `[N]`, where it lies among
    `sequences x rows`. base: `[sequences]`, rows that all of a sequence's rows see. seen: `[sequences, rows, rows]`.
    """
    behind = torch.arange(columns, device=ids.device) - base.unsqueeze(1)
    own = seen.gather(2, behind.clamp(0, rows - 1).unsqueeze(1).expand(-1, rows, -1))
    visible = (behind < 0).unsqueeze(1) | ((behind < rows).unsqueeze(1) & own)
    mask = cache.folded(additive(visible, model.dtype))
    cache.layout = AttentionMetadata(
        cache.stored(of, places), PaddedAttention(slice(0, len(base)), rows, columns, at, mask)
    )
    logits, states = model.forward(ids, positions, None, cache, hidden, len(ids))
    return logits, *(states[layer] for layer in hidden)
