"""Any transformers causal model as a runner's model: its own modules, our cache, our mask."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from sampling.forward.caches.cache import RollbackCache, RollbackLayer
from sampling.forward.caches.rows_transformers import TransformersRowsCache, ViewedCache
from sampling.forward.causal_model import PromptReading, chains_only
from sampling.forward.kernels import attention
from sampling.forward.models.steps import BlockShape
from sampling.forward.sharded.cut import whole


class _ViewedLayer(CacheLayerMixin):
    """A layer of ours as transformers' attention modules call it."""

    is_compileable = False
    is_croppable = True

    def __init__(self, cache: RollbackCache, rows: RollbackLayer) -> None:
        super().__init__()
        self._cache, self._rows = cache, rows

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


class TransformersCache(RollbackCache):
    """A rollback cache with the face that transformers knows: `view` is handed to its forward."""

    def __init__(self, num_layers: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(num_layers, device, dtype)
        self.view = Cache(layers=[_ViewedLayer(self, layer) for layer in self.layers])

    single = True

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


class TransformersWeights:
    """What any transformers model has that a runner or a head asks for, beside a forward."""

    num_layers: int
    trees = True

    def __init__(self, model: PreTrainedModel) -> None:
        self.hf = model.eval()
        self.device, self.dtype = model.device, model.dtype

    def new_cache(self) -> TransformersCache:
        """See `CausalModel.new_cache`."""
        return TransformersCache(self.num_layers, self.device, self.dtype)

    @property
    def embedding(self) -> Tensor:
        """`[V, H]`."""
        weight: Tensor = self.hf.get_input_embeddings().weight
        return weight

    def output_rows(self, ids: Tensor) -> Tensor:
        """See `CausalModel.output_rows`."""
        return whole(self.hf.get_output_embeddings().weight)[ids]

    def landmarks(self) -> dict[str, Tensor]:
        """See `CausalModel.landmarks`."""
        norms = {
            name: weight for name, weight in self.hf.named_parameters() if weight.dim() == 1 and "bias" not in name
        }
        return {"embedding": self.embedding, **norms}


class TransformersModel(TransformersWeights):
    """Feeds positions, a ready mask and a cache to the model's own forward.

    keeps_rows: see `LeanModel`. rows_shape: heads and width of the rows that its layers keep, where all keep the same
    and that was looked at. kernel: what computes its products, where there was a choice. batch_invariant: whether its
    attention is; see `Format`.
    """

    keeps_rows = True
    rows_shape: BlockShape | None = None
    kernel: str | None = None
    batch_invariant = False

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.window: int = config.max_position_embeddings
        self.vocab_size: int = config.vocab_size
        if getattr(model, "_supports_attention_backend", False) and model._supports_sdpa:
            attention.register()
            model.set_attn_implementation(attention.FOLDED)

    def with_batch_invariance(self, on: bool) -> "TransformersModel":
        """The same model, its attention batch-invariant or not."""
        made = copy(self)
        made.batch_invariant = on
        return made

    def rows_cache(self) -> TransformersRowsCache:
        """See `Shareable.rows_cache`; `rows_shape` is known by then."""
        assert self.rows_shape is not None
        return TransformersRowsCache(self.num_layers, self.rows_shape, self.device, self.dtype)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `CausalModel.read`."""
        return PromptReading(list(prompt))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: ViewedCache,
        hidden: Sequence[int],
        rows: int | Tensor,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`. transformers computes at least one row of logits; 0 rows drop it."""
        if not self.trees:
            self._refuse_tree(positions, cache.following(len(positions)))
        last = rows if isinstance(rows, int) and (cache.single or not rows) else None
        with attention.batch_invariant(self.batch_invariant):
            output = self.hf(
                input_ids=cache.batched(tokens),
                position_ids=cache.batched(positions),
                attention_mask=cache.batched_mask(mask),
                past_key_values=cache.view,
                use_cache=True,
                logits_to_keep=0 if last is None else max(last, 1),
                output_hidden_states=bool(hidden),
            )
        states = {layer: cache.flat(output.hidden_states[layer]) for layer in hidden}
        if last == 0:
            return output.logits[0, :0], states
        logits = cache.flat(output.logits)
        return logits[len(logits) - rows :] if isinstance(rows, int) else logits.index_select(0, rows), states

    def _refuse_tree(self, positions: Tensor, following: range | None) -> None:
        """Raises `UserError` for rows that do not stand one behind the other, each in its own place."""
        if following is not None and positions.tolist() != list(following):
            raise chains_only(self)
