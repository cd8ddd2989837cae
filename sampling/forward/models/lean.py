"""A lean forward for Llama-family models: an embedding, blocks, an output matrix, and weights shared by all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.rows import RowsCache, RowsSlot
from sampling.forward.causal_model import PromptReading
from sampling.forward.kernels.formats import FORMATS, FULL, Format
from sampling.forward.kernels.int8 import Int8Linear
from sampling.forward.kernels.linear import Kernel, Linear
from sampling.forward.kernels.probe import kernel_name
from sampling.forward.models.blocks import Attending, Blocks, Layer, Weights, fuse, rotary_table
from sampling.forward.models.compiled import compiled
from sampling.forward.models.fused import fused
from sampling.forward.models.steps import BlockShape, Norm
from utils.errors import UserError

if TYPE_CHECKING:  # transformers' model code costs seconds to import, and a lean model needs none of it
    from transformers import PreTrainedModel

FAMILIES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class LeanModel:
    """A causal model as a list of blocks between an embedding and an output matrix.

    tied: the output matrix is the embedding. batch_invariant: see `Format`.
    """

    embedding: Tensor
    blocks: Blocks
    norm: Norm
    head: Linear
    window: int
    vocab_size: int
    tied: bool
    batch_invariant: bool = False

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.blocks.layers

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def trees(self) -> bool:
        """See `CausalModel.trees`."""
        return True

    @property
    def keeps_rows(self) -> bool:
        """Whether a text is its keys and values and nothing else, so that they can be taken out and put back."""
        return True

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def kernel(self) -> str | None:
        """What computes its products, as a user calls it; None where there was no choice."""
        return kernel_name(self.layers[0].qkv, self.device)

    def output_rows(self, ids: Tensor) -> Tensor:
        """Rows `[m, H]` of the output matrix for the token ids `[m]`."""
        if self.tied:
            return self.embedding[ids]
        unit = torch.eye(self.embedding.shape[1], device=self.device, dtype=self.dtype)
        return (self.head(unit) - self.head(torch.zeros_like(unit[:1])))[:, ids].T.contiguous()

    def landmarks(self) -> dict[str, Tensor]:
        """Weights that tell this model from others: the embedding and every norm."""
        norms = {f"{place}.{name}": norm for place, layer in enumerate(self.layers) for name, norm in layer.norms()}
        return {"embedding": self.embedding, **{name: norm.weight for name, norm in norms.items()}}

    def with_kernel(self, kernel: Kernel) -> "LeanModel":
        """The same model, its products computed by another kernel."""
        return self.with_format(Format(kernel, kernel, self.batch_invariant))

    def with_format(self, format: Format) -> "LeanModel":
        """The same model, its weights in another format; embedding and norms are shared."""
        blocks, head = self.blocks.with_kernel(format.blocks), self.head.with_kernel(format.output)
        return replace(self, blocks=blocks, head=head, batch_invariant=format.batch_invariant_on(self.device))

    def compiled(self, tell: Callable[[float], None]) -> "LeanModel":
        """The same model, what lies between its products compiled. Raises `UserError` where that cannot be."""
        if self.device.type not in ("cpu", "cuda"):
            raise UserError(f"what lies between products is compiled on CPUs and CUDA, and this is on {self.device}")
        return replace(self, blocks=compiled(self.blocks, tell) if self.device.type == "cpu" else fused(self.blocks))

    def with_batch_invariance(self, on: bool) -> "LeanModel":
        """The same model, its attention batch-invariant or not."""
        return replace(self, batch_invariant=on)

    @cached_property
    def int8(self) -> "LeanModel":
        """The same model with its products in int8; made once, because many layers take seconds."""
        return self.with_format(Format(Int8Linear, Int8Linear))

    def new_cache(self) -> RowsSlot:
        """See `CausalModel.new_cache`."""
        return RowsSlot(self.rows_cache())

    def rows_cache(self) -> RowsCache:
        """See `Shareable.rows_cache`."""
        return RowsCache(self.num_layers, self.blocks.shape, self.device, self.dtype, self.batch_invariant)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `CausalModel.read`."""
        return PromptReading(list(prompt))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Attending,
        hidden: Sequence[int],
        rows: int | Tensor,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`; rows: how many from the end, or which `[m]`."""
        x = F.embedding(tokens, self.embedding)
        states = {0: x} if 0 in hidden else {}
        for index, state in enumerate(self.blocks.run(x, positions, mask, cache), start=1):
            x = state
            if index in hidden and index < self.num_layers:
                states[index] = x
        none = isinstance(rows, int) and not rows
        if none and self.num_layers not in hidden:
            return x.new_empty(0, self.vocab_size), states
        final = self.norm(x)
        if self.num_layers in hidden:
            states[self.num_layers] = final
        rows_wanted = final[len(tokens) - rows :] if isinstance(rows, int) else final.index_select(0, rows)
        return self.head(rows_wanted), states


def fits(model: "PreTrainedModel") -> bool:
    """Whether the lean forward covers this model: see `covers`."""
    return covers(type(model).__name__, model.config)


def covers(architecture: str, config: Any) -> bool:
    """Whether the lean forward computes this: a known family, SiLU, full attention, static rotary table."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        architecture in FAMILIES
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") in _STATIC_ROPE
        and all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    )


def from_transformers(model: "PreTrainedModel", release: bool = False, format: Format = FORMATS[FULL]) -> LeanModel:
    """The lean form of a model that `fits`.

    release: empty the model's own weights, so that they are freed block by block while they are fused and
    the two forms never stand in memory together. The transformers model is unusable afterwards.
    """
    weights = {name: weight.detach() for name, weight in model.named_parameters(remove_duplicate=False)}
    rotary = model.model.rotary_emb
    inv_freq = rotary.inv_freq
    if release:
        model.to("meta")
    return from_weights(model.config, weights, inv_freq, rotary.attention_scaling, format)


def from_weights(
    config: Any, weights: Weights, inv_freq: Tensor, rope_scale: float = 1.0, format: Format = FORMATS[FULL]
) -> LeanModel:
    """The lean form of the weights by their transformers names, which are taken out of the mapping as they are fused.

    config: what `covers` accepts. inv_freq: `[head_dim / 2]` rotary frequencies; rope_scale: factor on cos
    and sin (YaRN). A checkpoint without `lm_head.weight` ties it to the embedding.
    """
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = BlockShape(config.num_attention_heads, config.num_key_value_heads, head_dim)
    absent = "lm_head.weight" not in weights
    embedding = weights.pop("model.embed_tokens.weight")
    output = weights.pop("lm_head.weight", embedding)
    tied = absent or output.data_ptr() == embedding.data_ptr()
    head = format.output(output, weights.pop("lm_head.bias", None))
    del output  # the blocks come next, and a packed or rounded head is a copy
    eps = config.rms_norm_eps
    blocks = tuple(
        fuse(weights, f"model.layers.{index}.", eps, format.blocks) for index in range(config.num_hidden_layers)
    )
    cos, sin = rotary_table(inv_freq, rope_scale, config.max_position_embeddings, embedding)
    norm = Norm(weights.pop("model.norm.weight"), eps)
    window, vocab_size = config.max_position_embeddings, config.vocab_size
    batch_invariant = format.batch_invariant_on(embedding.device)
    return LeanModel(embedding, Blocks(blocks, cos, sin, shape), norm, head, window, vocab_size, tied, batch_invariant)
