"""The rows of one sequence with the face that transformers' own modules know."""

from collections.abc import Sequence
from typing import Any
from weakref import proxy

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionLayer

from sampling.forward.caches.cache import RollbackCache, RollbackLayer
from utils.errors import UserError

FULL = "full_attention"
_STATES = ("linear_attention", "conv")
_HYBRID = ("hybrid", "hybrid_sliding")
SLIDING = ("sliding_attention", "reference_sliding_attention", "hybrid_sliding")
CHUNKED = "chunked_attention"
_INDEXED, _EMPTY = "indexed_attention", "dummy"
KNOWN = frozenset({FULL, _EMPTY, _INDEXED, CHUNKED, *_STATES, *_HYBRID, *SLIDING})
"""Types of layers that can take tokens back, by transformers' names."""


def column_positions(cached: int, positions: Tensor) -> Tensor:
    """The position of the token in each row, `[cached + n]`: a cached row stands where it lies."""
    return torch.cat([torch.arange(cached, device=positions.device), positions])


def has_state(layer_type: str) -> bool:
    """Whether a layer of this type sums up the text before a token: it reads chains only."""
    return layer_type in (*_STATES, *_HYBRID)


class ViewedLayer(CacheLayerMixin):
    """A layer of ours as transformers' attention modules call it."""

    is_compileable = False
    is_croppable = True

    def __init__(self, cache: RollbackCache, rows: RollbackLayer, sliding: bool = False) -> None:
        super().__init__()
        self._cache: RollbackCache = proxy(cache)
        self._rows, self.is_sliding = rows, sliding

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the rows make room when they are written."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self._rows.write(key_states, value_states)

    def get_seq_length(self) -> int:
        return self._cache.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.length + query_length, 0

    def get_max_length(self) -> int:
        return -1


class IndexedLayer(ViewedLayer):
    """Sparse attention that chooses its rows by an index (DeepSeek V3.2): one more key a row, `[1, n, D]`."""

    def __init__(self, cache: RollbackCache, rows: RollbackLayer) -> None:
        super().__init__(cache, rows)
        self.keys_there: Tensor | None = None

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        """Store the index keys of n rows behind those that count; all of them."""
        before = self.keys_there
        if before is not None and self._cache.length:
            indexer_key_states = torch.cat([before[:, : self._cache.length], indexer_key_states], dim=1)
        self.keys_there = indexer_key_states
        return indexer_key_states

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        if self.keys_there is not None:
            self.keys_there[:, to : to + len(rows)] = self.keys_there.index_select(1, rows)


class HybridLayer(ViewedLayer, LinearAttentionLayer):
    """Rows and a state in one layer (Falcon-H1, Zamba 2)."""

    def __init__(self, cache: RollbackCache, rows: RollbackLayer, sliding: bool, states: int) -> None:
        ViewedLayer.__init__(self, cache, rows, sliding)
        LinearAttentionLayer.__init__(self, number_of_states=states)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        LinearAttentionLayer.lazy_initialization(self, *args, **kwargs)


class TransformersCache(RollbackCache):
    """A rollback cache with the face that transformers knows: `view` is handed to its forward.

    types: of each layer, by transformers' names. states: how many states a layer has that has some.
    """

    single = True

    def __init__(
        self,
        num_layers: int,
        device: torch.device,
        dtype: torch.dtype,
        types: Sequence[str] = (),
        states: Sequence[int] = (),
    ) -> None:
        super().__init__(num_layers, device, dtype)
        types, states = types or [FULL] * num_layers, states or [1] * num_layers
        self.view = Cache(layers=[self._viewed(*each) for each in zip(self.layers, types, states, strict=True)])

    def _viewed(self, rows: RollbackLayer, layer_type: str, states: int) -> Any:
        sliding = layer_type in (*SLIDING, CHUNKED)
        if layer_type in _HYBRID:
            return HybridLayer(self, rows, sliding, states)
        if layer_type in _STATES:
            return LinearAttentionLayer(number_of_states=states)
        if layer_type == _INDEXED:
            return IndexedLayer(self, rows)
        if layer_type == _EMPTY:
            return cache_utils.DummyLayer()  # versions without it have no layers of this type
        return ViewedLayer(self, rows, sliding)

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        super().move(rows, to)
        for layer in self.view.layers:
            if isinstance(layer, IndexedLayer):
                layer.move(rows, to)

    def following(self, count: int) -> range:
        """See `ViewedCache.following`."""
        return range(self.length, self.length + count)

    def batched(self, rows: Tensor) -> Tensor:
        """See `ViewedCache.batched`."""
        return rows.unsqueeze(0)

    def flat(self, batched: Tensor) -> Tensor:
        """See `ViewedCache.flat`."""
        rows: Tensor = batched[0]
        return rows

    def batched_mask(self, mask: Tensor | None) -> Tensor | None:
        """See `ViewedCache.batched_mask`."""
        return None if mask is None else mask[None, None]

    def column_positions(self, positions: Tensor) -> Tensor:
        """See `ViewedCache.column_positions`."""
        return column_positions(self.length, positions).unsqueeze(0)


class ChainCache(TransformersCache):
    """A cache for chains alone: transformers makes the masks of a chain itself. It knows its tokens.

    trees_refused: the error for a tree.
    """

    def __init__(self, trees_refused: UserError, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._trees_refused = trees_refused
        self.tokens: list[int] = []

    def crop(self, length: int) -> None:
        """See `SequenceCache.crop`."""
        super().crop(length)
        del self.tokens[length:]

    def lay_out(self, count: int, parents: Sequence[int] | None = None) -> tuple[Tensor, Tensor | None]:
        """See `SequenceCache.lay_out`. Raises `UserError` for a tree."""
        if parents is not None and list(parents) != list(range(-1, count - 2)):
            raise self._trees_refused
        return self.positions(count), None

    def lay_out_seen(self, positions: Tensor, seen: Tensor, shared: int | None = None) -> Tensor | None:
        """See `SequenceCache.lay_out_seen`: refused."""
        raise self._trees_refused
