"""Layers that see a part of the text: the last tokens (a sliding window), or those of the same chunk.

Transformers' modules keep all rows. A mask says which of them a row sees, by position: so a draft is taken back as in
any other layer, and the drafts of a tree see what they would see in a chain.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sampling.forward.caches.transformers_cache import CHUNKED, SLIDING

_LONGEST = ("max_position_embeddings", "max_seq_len", "seq_length")
UNLIMITED = 1 << 20
"""Tokens of a text where nothing limits it: a state and ALiBi's distances have no last position."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a layer sees of the text before a token. size: tokens of a window, or of a chunk."""

    size: int
    chunked: bool = False

    def inside(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Whether the token at each position `[..., n]` sees that at each position `[..., L]`: `[..., n, L]` bool."""
        queries, keys = queries.unsqueeze(-1), keys.unsqueeze(-2)
        if self.chunked:
            return queries // self.size == keys // self.size
        return queries - keys < self.size

    def hide(self, mask: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """An additive mask `[..., n, L]` that also hides what `inside` does not see."""
        return mask.masked_fill(~self.inside(queries, keys), torch.finfo(mask.dtype).min)

    def everything(self, tokens: int) -> bool:
        """Whether it hides nothing of a text of so many tokens."""
        return tokens <= self.size


def windows_of(config: Any) -> dict[str, Window]:
    """The window of each type of layer that has one, by the name that transformers gives the type.

    A window that no text outgrows is none.
    """
    from transformers.cache_utils import get_layer_types_and_kwargs

    types, settings = get_layer_types_and_kwargs(config)
    if isinstance(settings, dict):  # one for all layers, as in transformers 5.17
        settings = [settings] * len(types)
    found = {
        name: Window(values["sliding_window"], name == CHUNKED)
        for name, values in zip(types, settings, strict=True)
        if name in (*SLIDING, CHUNKED)
    }
    longest = context_length(config)
    return {name: window for name, window in found.items() if not window.everything(longest)}


def context_length(config: Any) -> int:
    """The longest text of a model; `UNLIMITED` where its configuration names none."""
    return next((length for name in _LONGEST if (length := getattr(config, name, None))), UNLIMITED)
