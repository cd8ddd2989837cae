"""A lean forward for decoder-only models: an embedding, blocks, an output matrix, and weights shared by all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.blocks import BlockRows
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.caches.rows_windowed import WindowedRowsCache
from sampling.forward.causal_model import PromptReading
from sampling.forward.cpp.block import places_of
from sampling.forward.cpp.whole import Ends, NativeForward, native_forward
from sampling.forward.kernels.formats import FORMATS, FULL, Format
from sampling.forward.kernels.int8 import rough_int8
from sampling.forward.kernels.linear import Kernel, Linear
from sampling.forward.kernels.probe import kernel_name
from sampling.forward.models.blocks import Attending, Blocks, Layer, Weights
from sampling.forward.models.compiled import compiled
from sampling.forward.models.decoders.fusing import fuse, norm_of
from sampling.forward.models.decoders.rope import tables
from sampling.forward.models.decoders.table import decoder_of, described, text_config
from sampling.forward.models.experts import Woken
from sampling.forward.models.fused import fused
from sampling.forward.models.steps import Norm
from utils.errors import UserError

if TYPE_CHECKING:  # transformers' model code costs seconds to import, and a lean model needs none of it
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class LeanModel:
    """A causal model as a list of blocks between an embedding and an output matrix.

    tied: the output matrix is the embedding. batch_invariant: see `Format`. embedding_scale, logit_scale: factors.
    logit_cap: a logit z becomes logit_cap * tanh(z / logit_cap).
    """

    embedding: Tensor
    blocks: Blocks
    norm: Norm
    head: Linear
    window: int
    vocab_size: int
    tied: bool
    batch_invariant: bool = False
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None

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

    @cached_property
    def woken(self) -> tuple[Woken, ...]:
        """See `experts_of`."""
        return tuple(layer.experts.woken for layer in self.layers if layer.experts)

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
        return self.with_format(Format(rough_int8, rough_int8))

    def new_cache(self) -> RowsSlot:
        """See `CausalModel.new_cache`."""
        return RowsSlot(self.rows_cache())

    def rows_cache(self, whole: bool = False, blocks: bool = False) -> RowsCache:
        """See `Shareable.rows_cache`. A batch-invariant one is whole: its sums begin at the first row of a text.

        One that drops rows behind windows has no blocks.
        """
        windows = [layer.scores.window for layer in self.layers]
        if any(windows) and not whole and not self.batch_invariant:
            return WindowedRowsCache(windows, self.blocks.shape, self.device, self.dtype)
        made = BlockRows if blocks else RowsCache
        return made(self.num_layers, self.blocks.shape, self.device, self.dtype, self.batch_invariant)

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
        last, states = self.num_layers, {0: self._embedded(tokens)} if 0 in hidden else {}
        if self.native is not None and (places := places_of(cache)) is not None:
            count, width = len(tokens), self.embedding.shape[1]
            between = {number: self.embedding.new_empty(count, width) for number in hidden if 0 < number < last}
            final, logits = self.native.run(tokens, None, positions, places, rows, between)
        else:
            x = states[0] if 0 in states else self._embedded(tokens)
            between = self.blocks.run(x, positions, mask, cache, hidden=hidden)
            final, logits = self._left(between.pop(last), rows)
        states |= between | ({last: final} if last in hidden else {})
        return self._scaled(logits), states

    @cached_property
    def native(self) -> NativeForward | None:
        """The same model in one call of C++, its logits before they are scaled: see `native_forward`."""
        if self.embedding_scale != 1.0:
            return None
        ends = Ends(self.embedding, self.norm, self.head, normed_feedback=True)
        return native_forward(self.blocks, ends, lambda blocks: replace(self, blocks=blocks)._stepwise)

    def _stepwise(
        self, tokens: Tensor, above: Tensor | None, positions: Tensor, cache: Attending, rows: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Stepwise`; nothing is above a model's rows."""
        states = self.blocks.run(self._embedded(tokens), positions, None, cache)
        return self._left(states[self.num_layers], rows)

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, self.embedding)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def _left(self, x: Tensor, rows: int | Tensor) -> tuple[Tensor, Tensor]:
        """States behind the last norm `[n, H]`, and logits of the rows that are wanted, not scaled."""
        final = self.norm(x)
        if isinstance(rows, int) and not rows:
            return final, x.new_empty(0, self.vocab_size)
        return final, self.head(final[len(x) - rows :] if isinstance(rows, int) else final.index_select(0, rows))

    def _scaled(self, logits: Tensor) -> Tensor:
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        if self.logit_cap is not None:
            logits = torch.tanh(logits / self.logit_cap) * self.logit_cap
        return logits


def fits(model: "PreTrainedModel") -> bool:
    """Whether the lean forward covers this model: see `covers`."""
    return covers(type(model).__name__, model.config)


def covers(architecture: str, config: Any) -> bool:
    """Whether the lean forward computes this: see `described`."""
    return described(architecture, config) is not None


def divides(architecture: str, config: Any) -> bool:
    """Whether it does, and its weights can be cut for several processes by whole heads; see `DecoderDescription`."""
    decoder = described(architecture, config)
    return decoder is not None and decoder.divides and text_config(config) is config


def from_transformers(model: "PreTrainedModel", release: bool = False, format: Format = FORMATS[FULL]) -> LeanModel:
    """The lean form of a model that `fits`; of one that sees as well, that of its text model.

    release: empty the model's own weights, so that they are freed block by block while they are fused and
    the two forms never stand in memory together. The transformers model is unusable afterwards.
    """
    weights = {
        name.replace("model.language_model.", "model."): weight.detach()
        for name, weight in model.named_parameters(remove_duplicate=False)
    }
    config = text_config(model.config)
    if release:
        model.to("meta")
    return from_weights(config, weights, format)


def from_weights(config: Any, weights: Weights, format: Format = FORMATS[FULL]) -> LeanModel:
    """The lean form of the weights by their transformers names, which are taken out of the mapping as they are fused.

    config: of a text model that `covers` accepts. A checkpoint without `lm_head.weight` ties it to the embedding.
    """
    decoder = decoder_of(config)
    absent = "lm_head.weight" not in weights
    embedding = weights.pop("model.embed_tokens.weight")
    output = weights.pop("lm_head.weight", embedding)
    tied = absent or output.data_ptr() == embedding.data_ptr()
    head = format.output(output, weights.pop("lm_head.bias", None))
    del output  # the blocks come next, and a packed or rounded head is a copy
    names, still = decoder.names, len(decoder.ropes)
    blocks = tuple(
        fuse(weights, f"model.layers.{index}.", decoder.eps, format.blocks, names, layer.with_table(still))
        for index, layer in enumerate(decoder.layers)
    )
    window = config.max_position_embeddings
    norm = norm_of(weights.pop("model.norm.weight"), decoder.eps, names)
    return LeanModel(
        embedding,
        Blocks(blocks, tables(decoder, window, embedding), decoder.shape),
        norm,
        head,
        window,
        config.vocab_size,
        tied,
        format.batch_invariant_on(embedding.device),
        _rounded(decoder.embedding_scale, embedding.dtype),
        decoder.logit_scale,
        decoder.logit_cap,
    )


def _rounded(scale: float, dtype: torch.dtype) -> float:
    """A factor as a model of this dtype has it."""
    return scale if scale == 1.0 else float(torch.tensor(scale, dtype=dtype))
