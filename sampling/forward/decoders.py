"""The decoders of encoder-decoder families, layer by layer on transformers' own modules.

Their own forward takes no positions, which a tree of drafts needs; so embedding, positions and mask are ours.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

# T5 counts distances, not places, and far ones all alike, so that its configuration names no limit.
T5_WINDOW = 2048


class Decoder(ABC):
    """What one family does in its own way. States are `[1, n, H]`; the source's `[1, s, H]`."""

    window: int
    source_window: int
    layers: Any

    @abstractmethod
    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The first states of the tokens `[n]` at the positions `[n]`."""

    @abstractmethod
    def bias(self, positions: Tensor, mask: Tensor | None, cached: int) -> Tensor | None:
        """What self-attention adds to its scores, `[1, heads or 1, n, cached + n]`. mask: `[n, cached + n]`."""

    @abstractmethod
    def cross(self, states: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Keys and values of the source in each layer, `[1, heads, s, D]`."""

    @abstractmethod
    def step(self, layer: Any, x: Tensor, bias: Tensor | None, encoded: Tensor, cache: EncoderDecoderCache) -> Tensor:
        """The states behind one layer."""

    @abstractmethod
    def finish(self, x: Tensor) -> Tensor:
        """What follows the last layer."""

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """`[m, V]` of finished states `[m, H]`."""


class T5Decoder(Decoder):
    """T5 and mT5 (arXiv 1910.10683): a learned bias for each distance between two tokens."""

    def __init__(self, model: Any) -> None:
        self.window = self.source_window = T5_WINDOW
        self._decoder, self._head = model.get_decoder(), model.lm_head
        self.layers = self._decoder.block
        scaled = getattr(model.config, "scale_decoder_outputs", False)
        self._scale = model.config.d_model**-0.5 if scaled else 1.0

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self._decoder.embed_tokens(tokens.unsqueeze(0))
        return x

    def bias(self, positions: Tensor, mask: Tensor | None, cached: int) -> Tensor:
        """Distances from positions, not from rows: the drafts of one depth in a tree are equally far from a token."""
        attention = self.layers[0].layer[0].SelfAttention
        places = torch.cat([torch.arange(cached, device=positions.device), positions])
        bucket = attention._relative_position_bucket(
            places.unsqueeze(0) - positions.unsqueeze(1),
            bidirectional=False,
            num_buckets=attention.relative_attention_num_buckets,
            max_distance=attention.relative_attention_max_distance,
        )
        bias: Tensor = attention.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)
        return bias if mask is None else bias + mask

    def cross(self, states: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for block in self.layers:
            attention = block.layer[1].EncDecAttention
            yield _heads(attention.k(states), attention.n_heads), _heads(attention.v(states), attention.n_heads)

    def step(self, layer: Any, x: Tensor, bias: Tensor | None, encoded: Tensor, cache: EncoderDecoderCache) -> Tensor:
        """The bias goes in as the mask: without one, transformers would take the tokens for the text's first."""
        none = x.new_zeros(1, 1, 1, 1)
        after: Tensor = layer(
            x,
            attention_mask=bias,
            position_bias=none,
            encoder_hidden_states=encoded,
            encoder_decoder_position_bias=none,
            past_key_values=cache,
        )[0]
        return after

    def finish(self, x: Tensor) -> Tensor:
        normed: Tensor = self._decoder.final_layer_norm(x)
        return normed

    def logits(self, x: Tensor) -> Tensor:
        y: Tensor = self._head(x * self._scale)
        return y


class BartDecoder(Decoder):
    """BART (arXiv 1910.13461): an embedding for each place."""

    def __init__(self, model: Any) -> None:
        self.window = self.source_window = model.config.max_position_embeddings
        self._decoder, self._head, self._bias = model.get_decoder(), model.lm_head, model.final_logits_bias[0]
        self.layers = self._decoder.layers

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        places = self._decoder.embed_positions(None, position_ids=positions)
        x: Tensor = self._decoder.layernorm_embedding(self._decoder.embed_tokens(tokens.unsqueeze(0)) + places)
        return x

    def bias(self, positions: Tensor, mask: Tensor | None, cached: int) -> Tensor | None:
        return None if mask is None else mask[None, None]

    def cross(self, states: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.layers:
            attention = layer.encoder_attn
            count = attention.num_heads
            yield _heads(attention.k_proj(states), count), _heads(attention.v_proj(states), count)

    def step(self, layer: Any, x: Tensor, bias: Tensor | None, encoded: Tensor, cache: EncoderDecoderCache) -> Tensor:
        after: Tensor = layer(x, attention_mask=bias, encoder_hidden_states=encoded, past_key_values=cache)
        return after

    def finish(self, x: Tensor) -> Tensor:
        return x

    def logits(self, x: Tensor) -> Tensor:
        y: Tensor = self._head(x) + self._bias
        return y


class MarianDecoder(BartDecoder):
    """Marian's translation models: BART's layers, sines for places, no norm before the first layer."""

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        places = self._decoder.embed_positions(None, position_ids=positions)
        x: Tensor = self._decoder.embed_tokens(tokens.unsqueeze(0)) * self._decoder.embed_scale + places
        return x


def _heads(x: Tensor, count: int) -> Tensor:
    """`[1, s, heads * D]` -> `[1, heads, s, D]`."""
    return x.view(1, x.shape[1], count, -1).transpose(1, 2)


# By a configuration's `model_type`.
FAMILIES: dict[str, type[Any]] = {"t5": T5Decoder, "mt5": T5Decoder, "bart": BartDecoder, "marian": MarianDecoder}
