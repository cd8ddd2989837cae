"""Models that run chains of drafts alone: their forward knows where a row lies, and not where its token stands."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sampling.forward.caches.rows_transformers import ViewedCache
from sampling.forward.caches.transformers_cache import ChainCache
from sampling.forward.chains_only import chains_only
from sampling.forward.models.adapter import TransformersModel


class ChainModel(TransformersModel):
    """Leaves masks and distances to its own forward, which makes those of a chain (ALiBi: BLOOM, MPT)."""

    trees = False

    def new_cache(self) -> ChainCache:
        """See `CausalModel.new_cache`."""
        return ChainCache(chains_only(self), *self._cache_arguments)

    def rows_cache(self, whole: bool = False, blocks: bool = False) -> Any:
        """Its masks are those of one sequence."""
        raise NotImplementedError("its own forward makes the masks of one sequence")

    def _masks(self, cache: ViewedCache, mask: Tensor | None, positions: Tensor) -> Any:
        return None

    def _refuse_tree(self, positions: Tensor, following: range | None) -> None:
        """Its cache refuses trees."""


class RecomputingModel(ChainModel):
    """A model without a cache (OpenAI-GPT, XLM): each forward reads the whole text."""

    keeps_rows = False
    chains_because = "it keeps no keys and values"

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
        chain: ChainCache = cache
        chain.tokens[chain.length :] = tokens.tolist()
        whole = torch.tensor(chain.tokens, device=self.device)
        length, chain.length = chain.length, 0
        try:
            places = torch.arange(len(whole), device=self.device)
            logits, states = super().forward(whole, places, None, chain, hidden, len(tokens))
        finally:
            chain.length = length
        return logits[len(logits) - rows :], {layer: state[length:] for layer, state in states.items()}
