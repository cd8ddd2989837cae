"""Sequences in one forward of a transformers model: its own modules take a padded batch, our rows stay flat."""

from typing import Any, Protocol
from weakref import proxy

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from sampling.forward.caches.attention_metadata import AttentionMetadata, PaddedAttention
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_alone import FixedLayout
from sampling.forward.caches.rows_layer import RowsLayer
from sampling.forward.models.steps import BlockShape


class ViewedCache(Protocol):
    """A cache with the face that transformers knows: `view` is handed to its forward.

    single: whether one sequence is fed, so that the last rows of a batch are the last that are fed.
    """

    view: Cache

    @property
    def single(self) -> bool: ...

    def following(self, count: int) -> range | None:
        """Where so many rows stand that go on behind the text; None where the host does not know, or there are many."""
        ...

    def batched(self, rows: Tensor) -> Tensor:
        """`[N]` of the rows that are fed -> `[sequences, rows]`, zeros where nothing is fed."""
        ...

    def flat(self, batched: Tensor) -> Tensor:
        """`[sequences, rows, ...]` -> the rows that are fed."""
        ...

    def batched_mask(self, mask: Tensor | None) -> Tensor | None:
        """What the rows see, `[sequences, 1, rows, columns]`; mask: as `CausalModel.forward` has it."""
        ...

    def column_positions(self, positions: Tensor) -> Tensor:
        """The position of the token in each column, `[sequences, columns]`; positions: `[N]` of the fed rows."""
        ...


class _Layer(CacheLayerMixin):
    """A layer of ours as transformers' attention modules call it."""

    is_croppable = True

    def __init__(self, cache: "TransformersRowsCache", rows: RowsLayer) -> None:
        super().__init__()
        self._cache: TransformersRowsCache = proxy(cache)
        self._rows = rows

    @property
    def is_compileable(self) -> bool:
        return self._cache.single

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: there is room before a forward begins."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        cache = self._cache
        stored = self._rows.write(*(cache.flat(states.transpose(1, 2)) for states in (key_states, value_states)))
        keys, values = (buffer[cache.part, :, : cache.columns] for buffer in stored)
        return keys, values

    def get_seq_length(self) -> int:
        """Never told of fixed shapes: a length would be part of a graph, which then is right for one length alone."""
        if self._cache.single:
            raise NotImplementedError("it asks the cache for the length of the text, which is on the device")
        return self._cache.columns - self._cache.side.rows

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.columns, 0

    def get_max_length(self) -> int:
        return self._cache.keys.shape[3] if self._cache.single else -1


class TransformersRowsCache(RowsCache):
    """A cache of many sequences, side by side, or of one over fixed shapes: see `ViewedCache`."""

    def __init__(self, layers: int, shape: BlockShape, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(layers, shape, device, dtype, padded=True)
        self.view = Cache(layers=[_Layer(self, layer) for layer in self.layers])

    @property
    def single(self) -> bool:
        """See `ViewedCache`."""
        return isinstance(self.layout, FixedLayout)

    @property
    def side(self) -> PaddedAttention:
        """How the sequences of the forward under way lie."""
        layout = self.layout
        assert isinstance(layout, AttentionMetadata) and isinstance(layout.attending, PaddedAttention), (
            "all attend side by side"
        )
        return layout.attending

    @property
    def part(self) -> slice:
        """Whose rows those are that a layer has written to."""
        return slice(None) if self.single else self.side.part

    @property
    def columns(self) -> int:
        """How many columns are attended over."""
        return self.layout.columns if isinstance(self.layout, FixedLayout) else self.side.columns

    def following(self, count: int) -> None:
        """See `ViewedCache.following`."""

    def batched(self, rows: Tensor) -> Tensor:
        """See `ViewedCache.batched`."""
        if self.single:
            return rows.unsqueeze(0)
        side = self.side
        sequences = side.part.stop - side.part.start
        if side.at is not None:
            rows = rows.new_zeros(sequences * side.rows).index_copy_(0, side.at, rows)
        return rows.view(sequences, side.rows)

    def flat(self, batched: Tensor) -> Tensor:
        """See `ViewedCache.flat`."""
        rows = batched.flatten(0, 1)
        return rows if self.single or self.side.at is None else rows.index_select(0, self.side.at)

    def batched_mask(self, mask: Tensor | None) -> Tensor | None:
        """See `ViewedCache.batched_mask`; what is seen was laid out."""
        layout = self.layout
        if isinstance(layout, FixedLayout):
            assert layout.mask is not None, "a model's own layers attend through a mask"
            return layout.mask.within(None)[None, None]
        return None if self.side.mask is None else self.side.mask.within(None)

    def column_positions(self, positions: Tensor) -> Tensor:
        """See `ViewedCache.column_positions`: a row of the text stands where it lies, a draft of a tree may not."""
        layout, capacity = self.layout, self.keys.shape[3]
        columns = torch.arange(capacity, device=positions.device)
        if isinstance(layout, FixedLayout):
            return columns.index_copy(0, layout.rows, positions)[: layout.columns].unsqueeze(0)
        assert isinstance(layout, AttentionMetadata)
        there = columns.repeat(self.side.part.stop - self.side.part.start, 1)
        return there.scatter(1, self.batched(layout.rows), self.batched(positions))[:, : self.side.columns]
