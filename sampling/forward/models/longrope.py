"""LongRoPE (arXiv 2402.13753): positions turn keys in one way in a short text, and in another in a long one.

Phi-3 with 128k tokens, Phi-3.5 and Phi-4-mini have it. A text of more than `border` tokens is long, from its first
token on: the model says at each place what its own forward says of the text up to there without a cache. `generate`
says the same for the Phi families, whose cache it throws away at the border.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sampling.forward.caches.cache import seen
from sampling.forward.caches.rows_transformers import TransformersRowsCache
from sampling.forward.caches.transformers_cache import TransformersCache
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.runner import PREFILL_CHUNK


def border_of(config: Any) -> int | None:
    """The most tokens of a short text; None for a model whose positions are turned in one way."""
    rope = getattr(config, "rope_parameters", None) or {}
    border = rope.get("original_max_position_embeddings") if rope.get("rope_type") == "longrope" else None
    return border if border is not None and border < config.max_position_embeddings else None


class LongRopeCache(TransformersCache):
    """Rows that can be computed anew: it knows the token of each, where it stands, and the row before it in its text.

    long: how the rows' keys are turned; None where a forward was interrupted that turned them the other way.
    """

    def __init__(self, num_layers: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(num_layers, device, dtype)
        self.long: bool | None = False
        self.tokens: list[int] = []
        self.places: list[int] = []
        self.parents: list[int] = []

    def note(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> None:
        """Remember what is about to be written behind the rows that count; mask: as `CausalModel.forward` has it."""
        self.tokens[self.length :] = tokens.tolist()
        self.places[self.length :] = positions.tolist()
        if mask is None:
            self.parents[self.length :] = [self.length - 1]
            return
        before = (mask == 0).tril(self.length - 1)
        rows = torch.arange(1, before.shape[1] + 1, device=mask.device)
        self.parents[self.length :] = ((before * rows).amax(dim=1) - 1).tolist()

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        super().move(rows, to)
        kept = rows.tolist()
        new = {row: row for row in range(-1, to)} | {row: place for place, row in enumerate(kept, start=to)}
        self.parents[to:] = [new[self.parents[row]] for row in kept]
        self.tokens[to:] = [self.tokens[row] for row in kept]
        self.places[to:] = [self.places[row] for row in kept]

    def seen(self, start: int, stop: int) -> Tensor:
        """Which rows those from `start` to `stop` see, `[stop - start, stop]` bool on the CPU."""
        rows = seen(start, stop - start, None, torch.device("cpu"))
        fork = next((row for row in range(stop) if self.parents[row] != row - 1), stop)
        for row in range(max(start, fork), stop):
            rows[row - start] = False
            above = row
            while above >= fork:
                rows[row - start, above] = True
                above = self.parents[above]
            rows[row - start, : above + 1] = True
        return rows


class LongRopeModel(TransformersModel):
    """Computes each row by how long its own text is; cached rows that were turned the other way are computed anew."""

    keeps_rows = False  # a row can be computed anew, of tokens that its cache knows

    def __init__(self, model: PreTrainedModel, border: int) -> None:
        super().__init__(model)
        self.border = border

    def new_cache(self) -> LongRopeCache:
        """See `CausalModel.new_cache`."""
        return LongRopeCache(self.num_layers, self.device, self.dtype)

    def rows_cache(self, whole: bool = False, blocks: bool = False) -> TransformersRowsCache:
        """Its rotary table is that of one text, whose length decides."""
        raise NotImplementedError("its rotary table changes with the length of a text")

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Any,
        hidden: Sequence[int],
        rows: int | Tensor,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`. A draft across the border takes both ways, the long one last."""
        assert isinstance(rows, int), "which rows is asked by batches alone"
        rows_noted: LongRopeCache = cache
        rows_noted.note(tokens, positions, mask)
        is_long = positions >= self.border
        if not is_long.any():
            self._turn(cache, False)
            return super().forward(tokens, positions, mask, cache, hidden, rows)
        asked = len(tokens) if hidden else rows
        short = None
        if not is_long[len(tokens) - asked :].all():
            self._turn(cache, False)
            below = positions.clamp(max=self.border - 1)  # no row of a short text sees one of a long text
            short = super().forward(tokens, below, mask, cache, hidden, rows)
        self._turn(cache, True)
        long = super().forward(tokens, positions, mask, cache, hidden, rows)
        return long if short is None else _chosen(is_long, long, short)

    def _turn(self, cache: LongRopeCache, long: bool) -> None:
        """Have the cached rows turned in this way.

        transformers looks at a forward's last position to choose: a row behind the text says that it is long, and is
        overwritten.
        """
        if cache.long is long:
            return
        length, cache.long = cache.length, None
        for start in range(0, length, PREFILL_CHUNK):
            stop = min(start + PREFILL_CHUNK, length)
            ids = torch.tensor([*cache.tokens[start:stop], 0], device=self.device)
            places = torch.tensor([*cache.places[start:stop], self.border if long else 0], device=self.device)
            sight = torch.ones(stop - start + 1, stop + 1, dtype=torch.bool).tril(start)
            sight[:-1, :-1] = cache.seen(start, stop)
            cache.length = start
            try:
                super().forward(ids, places, cache.additive(sight.to(self.device)), cache, (), 0)
            finally:
                cache.length = length
        cache.long = long


def _chosen(
    is_long: Tensor, long: tuple[Tensor, dict[int, Tensor]], short: tuple[Tensor, dict[int, Tensor]]
) -> tuple[Tensor, dict[int, Tensor]]:
    """Of two computations of the same rows, `[n]` of them long, the one that each row is due."""
    choice = is_long.unsqueeze(1)
    logits = torch.where(choice[len(is_long) - len(long[0]) :], long[0], short[0])
    return logits, {layer: torch.where(choice, states, short[1][layer]) for layer, states in long[1].items()}
