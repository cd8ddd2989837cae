"""Many sequences in one forward of a transformers model: its own modules take a padded batch, our rows stay flat."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from sampling.forward.rows import Layout, RowsCache, RowsLayer, Side
from sampling.forward.steps import BlockShape

if TYPE_CHECKING:
    from sampling.forward.adapter import TransformersModel


class _Layer(CacheLayerMixin):
    """A layer of ours as transformers' attention modules call it."""

    is_compileable = False
    is_croppable = True

    def __init__(self, cache: "TransformersRowsCache", rows: RowsLayer) -> None:
        super().__init__()
        self._cache, self._rows = cache, rows

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: there is room before a forward begins."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        side = self._cache.side
        keys, values = (_flat(one.transpose(1, 2).flatten(0, 1), side) for one in (key_states, value_states))
        stored = self._rows.write(keys, values)
        return stored[0][side.part, :, : side.columns], stored[1][side.part, :, : side.columns]

    def get_seq_length(self) -> int:
        return self._cache.side.columns - self._cache.side.rows

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.side.columns, 0

    def get_max_length(self) -> int:
        return -1


class TransformersRowsCache(RowsCache):
    """A cache of many sequences with the face that transformers knows: `view` is handed to its forward."""

    def __init__(self, layers: int, shape: BlockShape, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(layers, shape, device, dtype, padded=True)
        self.view = Cache(layers=[_Layer(self, layer) for layer in self.layers])

    @property
    def side(self) -> Side:
        """How the sequences of the forward under way lie."""
        layout = self.layout
        assert isinstance(layout, Layout) and isinstance(layout.attending, Side), "all attend side by side"
        return layout.attending


def padded_forward(
    model: "TransformersModel",
    tokens: Tensor,
    positions: Tensor,
    cache: TransformersRowsCache,
    hidden: Sequence[int],
    rows: int | Tensor,
) -> tuple[Tensor, dict[int, Tensor]]:
    """See `Shareable.forward`. Here padding reaches the products."""
    side = cache.side
    ids, places = (_padded(one, side) for one in (tokens, positions))
    output = model.hf(
        input_ids=ids,
        position_ids=places,
        attention_mask=side.mask,
        past_key_values=cache.view,
        use_cache=True,
        logits_to_keep=1 if isinstance(rows, int) and not rows else 0,
        output_hidden_states=bool(hidden),
    )
    states = {layer: _flat(output.hidden_states[layer].flatten(0, 1), side) for layer in hidden}
    if isinstance(rows, int) and not rows:
        return output.logits[0, :0], states
    logits = _flat(output.logits.flatten(0, 1), side)
    return logits[len(tokens) - rows :] if isinstance(rows, int) else logits.index_select(0, rows), states


def _flat(padded: Tensor, side: Side) -> Tensor:
    """`[sequences * rows, ...]` -> the rows that are fed."""
    return padded if side.at is None else padded.index_select(0, side.at)


def _padded(flat: Tensor, side: Side) -> Tensor:
    """`[N]` -> `[sequences, rows]`, zeros where nothing is fed."""
    sequences = side.part.stop - side.part.start
    if side.at is not None:
        flat = flat.new_zeros(sequences * side.rows).index_copy_(0, side.at, flat)
    return flat.view(sequences, side.rows)
