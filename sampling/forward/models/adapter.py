"""Any transformers causal model as a runner's model: its own modules, our cache, our mask."""

from collections.abc import Iterator, Sequence
from copy import copy
from inspect import signature
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from sampling.forward.caches.rows_transformers import TransformersRowsCache, ViewedCache
from sampling.forward.caches.transformers_cache import FULL, TransformersCache
from sampling.forward.causal_model import PromptReading
from sampling.forward.chains_only import chains_only
from sampling.forward.kernels import attention
from sampling.forward.models.experts import Woken
from sampling.forward.models.steps import BlockShape
from sampling.forward.models.windows import context_length, windows_of
from sampling.forward.sharded.cut import whole

CACHES = ("cache_params", "past_key_values", "state")
"""What forwards call their cache."""


class TransformersWeights:
    """What any transformers model has that a runner or a head asks for, beside a forward."""

    num_layers: int
    trees = True
    layer_types: Sequence[str] = ()
    states: Sequence[int] = ()

    def __init__(self, model: PreTrainedModel) -> None:
        self.hf = model.eval()
        self.device, self.dtype = model.device, model.dtype

    def new_cache(self) -> TransformersCache:
        """See `CausalModel.new_cache`."""
        return TransformersCache(*self._cache_arguments)

    @property
    def _cache_arguments(self) -> tuple[Any, ...]:
        return self.num_layers, self.device, self.dtype, self.layer_types, self.states

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
    attention is; see `Format`. layer_types: of each layer, by transformers' names. windows: of the types that have one.
    mask_by_type: whether its forward takes a mask for each type of layer.
    """

    keeps_rows = True
    rows_shape: BlockShape | None = None
    kernel: str | None = None
    batch_invariant = False
    mask_by_type = False

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        config = model.config.get_text_config(decoder=True)
        self.num_layers: int = config.num_hidden_layers
        self.window: int = context_length(config)
        self.vocab_size: int = config.vocab_size
        self.layer_types, settings = get_layer_types_and_kwargs(config)
        self.states = [setting.get("number_of_states", 1) for setting in settings]
        self.windows = windows_of(config)
        self._left_out = _left_out(model)
        self.woken = tuple(_counted(model))
        chooses = "indexed_attention" in self.layer_types  # which looks for "sdpa" by name
        if getattr(model, "_supports_attention_backend", False) and model._supports_sdpa and not chooses:
            attention.register()
            model.set_attn_implementation(attention.FOLDED)

    def with_batch_invariance(self, on: bool) -> "TransformersModel":
        """The same model, its attention batch-invariant or not."""
        made = copy(self)
        made.batch_invariant = on
        return made

    def rows_cache(self, whole: bool = False, blocks: bool = False) -> TransformersRowsCache:
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
        arguments = {
            "input_ids": cache.batched(tokens),
            "position_ids": cache.batched(positions),
            "attention_mask": self._masks(cache, mask, positions),
            **dict.fromkeys(CACHES, cache.view),
            "use_cache": True,
            "logits_to_keep": 0 if last is None else max(last, 1),
            "output_hidden_states": bool(hidden),
        }
        with attention.batch_invariant(self.batch_invariant):
            output = self._call(cache, {name: arguments[name] for name in arguments if name not in self._left_out})
        states = {layer: cache.flat(output.hidden_states[layer]) for layer in hidden}
        if last == 0:
            return output.logits[0, :0], states
        logits = cache.flat(output.logits)
        return logits[len(logits) - rows :] if isinstance(rows, int) else logits.index_select(0, rows), states

    def _call(self, cache: ViewedCache, arguments: dict[str, Any]) -> Any:
        """transformers' own forward."""
        return self.hf(**arguments)

    def _masks(self, cache: ViewedCache, mask: Tensor | None, positions: Tensor) -> Any:
        """What each type of layer sees, or all layers where they are of one type."""
        full = cache.batched_mask(mask)
        if not self.windows:
            return full
        queries, keys = (
            places.unsqueeze(1) for places in (cache.batched(positions), cache.column_positions(positions))
        )
        if all(window.everything(keys.shape[-1]) for window in self.windows.values()):
            return full
        if full is None:
            full = torch.zeros(1, 1, len(positions), keys.shape[-1], dtype=self.dtype, device=self.device)
        masks = {name: window.hide(full, queries, keys) for name, window in self.windows.items()}
        if self.mask_by_type:
            return {**dict.fromkeys({FULL, *self.layer_types}, full), **masks}
        (only,) = masks.values()
        return only

    def _refuse_tree(self, positions: Tensor, following: range | None) -> None:
        """Raises `UserError` for rows that do not stand one behind the other, each in its own place."""
        if following is not None and positions.tolist() != list(following):
            raise chains_only(self)


def _counted(model: PreTrainedModel) -> Iterator[Woken]:
    """What the last forward wakes of each module that is told which experts its rows chose: see `experts_of`.

    On a CPU alone: elsewhere counting would make the host wait in every layer.
    """
    for module in model.modules() if model.device.type == "cpu" else ():
        if type(module).__name__.endswith("Experts") and isinstance(getattr(module, "num_experts", None), int):
            woken = Woken(0, module.num_experts)

            def note(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any], woken: Woken = woken) -> None:
                for chosen in (*given, *named.values()):
                    if isinstance(chosen, Tensor) and not chosen.is_floating_point():
                        woken.experts = len(chosen.unique())
                woken.seconds = -perf_counter()

            def time(_: nn.Module, given: object, result: object, woken: Woken = woken) -> None:
                woken.seconds += perf_counter()

            module.register_forward_pre_hook(note, with_kwargs=True)
            module.register_forward_hook(time)
            yield woken


def takes_cache(model: PreTrainedModel) -> bool:
    """Whether a forward of it can go on behind an earlier one."""
    return not signature(model.forward).parameters.keys().isdisjoint(CACHES)


def _left_out(model: PreTrainedModel) -> set[str]:
    """What this model's forward does not take of all that a forward may be given."""
    taken = signature(model.forward).parameters
    cache = next((name for name in CACHES if name in taken), None)
    return {name for name in (*CACHES, "position_ids") if name not in taken or (name in CACHES and name != cache)}
