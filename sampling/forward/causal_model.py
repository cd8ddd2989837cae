"""What a runner asks of a model, which is weights and nothing else, and what it gets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from sampling.forward.caches.cache import SequenceCache
from sampling.forward.caches.rows import RowsCache
from utils.device.sent import sent


class CausalModel(Protocol):
    """What a runner asks of a model. `window` is its context length, `vocab_size` its rows of logits."""

    @property
    def num_layers(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def trees(self) -> bool:
        """Whether its attention goes by positions and mask alone, as trees and beams need; others run chains."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def embedding(self) -> Tensor:
        """`[V, H]`."""
        ...

    def output_rows(self, ids: Tensor) -> Tensor:
        """Rows `[m, H]` of the output matrix for the token ids `[m]`."""
        ...

    def landmarks(self) -> dict[str, Tensor]:
        """Weights that tell this model from others: the embedding and every norm."""
        ...

    def new_cache(self) -> SequenceCache:
        """An empty cache for one sequence."""
        ...

    def read(self, prompt: Sequence[int]) -> "PromptReading":
        """What the model makes of a prompt (ids).

        A decoder-only model makes nothing of it: its text begins with the prompt. An encoder passes over it once.
        """
        ...

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Any,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits `[rows, V]` of the last `rows` of the tokens `[n]`, and the asked hidden states `[n, H]`.

        positions: `[n]`. mask: additive, `[n, cache.length + n]` in the model's dtype; None when n is 1 or
        when `rows` see everything. cache: what `new_cache` gave; keys and values go into it behind
        `cache.length`, which the caller advances. Layer numbers count as transformers' `hidden_states` do: 0 is
        the embedding, i the output of layer i, the last one after the final norm.
        """
        ...


@dataclass(frozen=True, slots=True)
class PromptReading:
    """A prompt as read: the ids that the text begins with.

    encoder_ids: what an encoder read, which is no part of the text; empty for a decoder-only model. memory: what
    the decoder needs of it, which the cache keeps.
    """

    tokens: list[int]
    encoder_ids: tuple[int, ...] = ()
    memory: Any = None


@dataclass(frozen=True, slots=True)
class Output:
    """logits `[rows, V]` in the model's dtype; hidden `{layer: [n, H]}` for the layers asked for."""

    logits: Tensor
    hidden: dict[int, Tensor] = field(default_factory=dict)


class Shareable(CausalModel, Protocol):
    """A model whose forward runs over the flat rows of many sequences as well."""

    def rows_cache(self, whole: bool = False, blocks: bool = False) -> RowsCache:
        """An empty cache for many sequences. whole: it keeps rows that no later token sees as well.

        blocks: its rows lie in blocks, where the model can have that: see `BlockRows`.
        """
        ...

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: Any, hidden: Sequence[int], rows: Any
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`. rows: how many from the end, or which `[m]`."""
        ...


def as_ids(tokens: Tensor | Sequence[int], device: torch.device) -> Tensor:
    """Token ids `[n]` on a device."""
    return tokens.to(device) if isinstance(tokens, Tensor) else sent(tokens, device)
