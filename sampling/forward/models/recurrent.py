"""Models with recurrent states or short convolutions, alone or beside attention: Mamba, Gated DeltaNet, LFM2.

They read chains of drafts. What a round takes back: see `RecurrentCache`.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sampling.forward.caches.states.recurrent import OwnStateCache, RecurrentCache
from sampling.forward.caches.states.rollback import Replay, Rollback
from sampling.forward.chains_only import chains_only
from sampling.forward.models.adapter import CACHES
from sampling.forward.models.chains import ChainModel
from sampling.forward.runner import PREFILL_CHUNK
from sampling.forward.scans import table

MOST_UNREAD = 16
"""Tokens that go in front of the next forward at most; more are read by a forward of their own."""


class RecurrentModel(ChainModel):
    """Feeds its own forward what the states lack in front of the tokens that are asked for.

    way: how its states go back.
    """

    keeps_rows = False  # a text is more than keys and values
    chains_because = "its states sum up all tokens before"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        table.take_over(model)
        self.way: Rollback = Replay()

    def going(self, way: Rollback) -> Self:
        """The same model whose states go back in this way."""
        made = copy(self)
        made.way = way
        return made

    def new_cache(self) -> RecurrentCache:
        """See `CausalModel.new_cache`."""
        return RecurrentCache(chains_only(self), *self._cache_arguments, way=self.way)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Any,
        hidden: Sequence[int],
        rows: int | Tensor,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`."""
        states: RecurrentCache = cache
        states.mend()
        taken_back = states.may_take_back(len(tokens))
        self._read_again(states)
        if taken_back:
            states.save()
        unread = states.unread
        fed = torch.cat([torch.tensor(unread, device=self.device, dtype=tokens.dtype), tokens]) if unread else tokens
        logits, found = self._read(states, fed, len(unread), hidden, rows)
        return logits, {layer: state[len(unread) :] for layer, state in found.items()}

    def _read(
        self, cache: RecurrentCache, tokens: Tensor, again: int, hidden: Sequence[int], rows: int | Tensor
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """A forward over tokens `[n]` behind those that the states have read; the first `again` count already."""
        places = torch.arange(cache.read, cache.read + len(tokens), device=self.device)
        with cache.reading(tokens, again):
            return super().forward(tokens, places, None, cache, hidden, rows)

    def _call(self, cache: Any, arguments: dict[str, Any]) -> Any:
        with table.run_by(cache.view):
            return super()._call(cache, arguments)

    def _read_again(self, cache: RecurrentCache) -> None:
        """Feed what the states lack where that is too much to go in front of the next forward."""
        if cache.read and len(cache.unread) <= MOST_UNREAD:
            return
        with cache.timed():
            while unread := cache.unread:
                fed = torch.tensor(unread[:PREFILL_CHUNK], device=self.device)
                self._read(cache, fed, len(fed), (), 0)


class OwnStateModel(RecurrentModel):
    """A recurrent model that keeps its states in an object of its own, which its forward returns."""

    def new_cache(self) -> OwnStateCache:
        """See `CausalModel.new_cache`."""
        return OwnStateCache(chains_only(self), *self._cache_arguments)

    def _call(self, cache: Any, arguments: dict[str, Any]) -> Any:
        output = self.hf(**arguments)
        cache.view = next(held for name in CACHES if (held := getattr(output, name, None)) is not None)
        return output
