"""Whether the products of a format take a model's layers, known from its sizes before a weight is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models.decoders.table import decoder_of, text_config
from sampling.forward.models.lean import LeanModel
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """What the layers of a lean model have as inputs and outputs; inner: of the MLP."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of_config(cls, config: Any) -> "LayerSizes":
        """config: what `lean.covers` accepts."""
        config = text_config(config)
        decoder = decoder_of(config)
        shape = decoder.shape
        return cls(config.hidden_size, decoder.inner, shape.heads, shape.kv_heads, shape.head_dim)

    @classmethod
    def of_model(cls, model: LeanModel) -> "LayerSizes":
        """The sizes of a loaded model."""
        nothing = torch.zeros(1, model.embedding.shape[1], device=model.device, dtype=model.dtype)
        layer = model.layers[-1]
        gate_up = layer.experts.gate_up[0] if layer.experts else layer.mlp
        inner = gate_up(nothing).shape[1] // 2
        shape = model.blocks.shape
        return cls(nothing.shape[1], inner, shape.heads, shape.kv_heads, shape.head_dim)

    def products(self) -> Iterator[tuple[str, int, int]]:
        """Layers that are one product, with their inputs and outputs."""
        mixed, turned = self.heads * self.head_dim, (self.heads + 2 * self.kv_heads) * self.head_dim
        yield "q_proj, k_proj, v_proj", self.hidden, turned
        yield "o_proj", mixed, self.hidden
        yield "gate_proj, up_proj", self.hidden, 2 * self.inner
        yield "down_proj", self.inner, self.hidden


def refuse_indivisible(weights: str, name: str, sizes: LayerSizes, asked: str) -> None:
    """Raise `UserError` where a layer of the model `name` has a size that the format's products do not take.

    asked: the words that asked for the format.
    """
    of_inputs, of_outputs = FORMATS[weights].multiples
    for layers, inputs, outputs in sizes.products():
        for size, what, unit in ((inputs, "inputs", of_inputs), (outputs, "outputs", of_outputs)):
            if size % unit:
                raise UserError(
                    f"{asked} given, and {name} has {size} {what} of {layers}; {weights} takes multiples of {unit}; "
                    "expected int8 or full, or another model"
                )
