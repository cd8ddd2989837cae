"""A fixed cache as transformers' attention modules call one."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from sampling.forward.fixed import FixedCache
from sampling.forward.steps import BlockShape


class _FixedLayer(CacheLayerMixin):
    """One layer: rows go where the step says, and all columns of the bucket are attended over, by the mask."""

    is_compileable = True
    is_croppable = False

    def __init__(self, cache: "FixedTransformersCache", index: int) -> None:
        super().__init__()
        self._cache, self._index = cache, index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the rows are there."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        cache = self._cache
        keys, values = cache.buffer[:, self._index]
        keys.index_copy_(1, cache.slots, key_states[0])
        values.index_copy_(1, cache.slots, value_states[0])
        return keys[:, : cache.columns].unsqueeze(0), values[:, : cache.columns].unsqueeze(0)

    def get_seq_length(self) -> int:
        """Never told: a length on the host would be part of a graph, which then is right for one length alone."""
        raise NotImplementedError("it asks the cache for the length of the text, which is on the device")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.columns, 0

    def get_max_length(self) -> int:
        return self._cache.capacity


class FixedTransformersCache(FixedCache):
    """A fixed cache with the face that transformers knows: `view` is handed to its forward."""

    def __init__(self, layers: int, shape: BlockShape, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(layers, shape, capacity, device, dtype)
        self.view = Cache(layers=[_FixedLayer(self, index) for index in range(layers)])
