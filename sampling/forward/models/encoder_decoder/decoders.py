"""The decoders of encoder-decoder families, layer by layer on transformers' own modules.

Their own forward takes no positions, which a tree of drafts needs; so embedding, positions and mask are ours.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.cache_utils import EncoderDecoderCache

from sampling.forward.caches.transformers_cache import column_positions

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
    def biases(self, positions: Tensor, mask: Tensor | None, cached: int) -> Iterator[Tensor | None]:
        """What self-attention of each layer adds to its scores, `[1, heads or 1, n, cached + n]`.

        mask: `[n, cached + n]`.
        """

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
    """T5, mT5 and LongT5 (arXiv 1910.10683, 2112.07916): a learned bias for each distance between two tokens."""

    def __init__(self, model: Any) -> None:
        self.window = self.source_window = T5_WINDOW
        self._decoder, self._head = model.get_decoder(), model.lm_head
        self.layers = self._decoder.block
        scaled = getattr(model.config, "scale_decoder_outputs", False)
        self._scale = model.config.d_model**-0.5 if scaled else 1.0

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self._decoder.embed_tokens(tokens.unsqueeze(0))
        return x

    def biases(self, positions: Tensor, mask: Tensor | None, cached: int) -> Iterator[Tensor | None]:
        bias = self._learned(self.layers[0], positions, cached)
        return repeat(bias if mask is None else bias + mask, len(self.layers))

    def _learned(self, layer: Any, positions: Tensor, cached: int) -> Tensor:
        """The biases of a layer's distances, `[1, heads, n, cached + n]`.

        Distances are between positions, not rows: the drafts of one depth in a tree are equally far from a token.
        """
        places = column_positions(cached, positions)
        attention = layer.layer[0].SelfAttention
        bucket = self._buckets(attention, places.unsqueeze(0) - positions.unsqueeze(1))
        bias: Tensor = attention.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)
        return bias

    def _buckets(self, attention: Any, distances: Tensor) -> Tensor:
        bucket: Tensor = attention._relative_position_bucket(
            distances,
            bidirectional=False,
            num_buckets=attention.relative_attention_num_buckets,
            max_distance=attention.relative_attention_max_distance,
        )
        return bucket

    def cross(self, states: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for block in self.layers:
            attention = block.layer[1].EncDecAttention
            yield heads_of(attention.k(states), attention.n_heads), heads_of(attention.v(states), attention.n_heads)

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


class UMT5Decoder(T5Decoder):
    """umT5 (arXiv 2304.09151): T5 with a bias of its own in each layer, which the layer adds by itself."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._scale = model.config.d_model**-0.5 if model.config.tie_word_embeddings else 1.0

    def biases(self, positions: Tensor, mask: Tensor | None, cached: int) -> Iterator[Tensor | None]:
        """A layer takes rows for positions: in a tree, what it adds is taken back and the right bias put in."""
        rows = torch.arange(cached, cached + len(positions), device=positions.device)
        for layer in self.layers:
            moved = self._learned(layer, positions, cached) - self._learned(layer, rows, cached)
            yield moved if mask is None else moved + mask

    def _buckets(self, attention: Any, distances: Tensor) -> Tensor:
        bucket: Tensor = attention._relative_position_bucket(distances)
        return bucket

    def step(self, layer: Any, x: Tensor, bias: Tensor | None, encoded: Tensor, cache: EncoderDecoderCache) -> Tensor:
        after: Tensor = layer(x, attention_mask=bias, encoder_hidden_states=encoded, past_key_values=cache)
        return after


class BartDecoder(Decoder):
    """BART (arXiv 1910.13461), PLBart, MVP: an embedding for each place, a norm before the first layer."""

    def __init__(self, model: Any) -> None:
        self.window, self.source_window = self._windows(model.config)
        self._decoder, self._head = model.get_decoder(), model.lm_head
        self._bias = getattr(model, "final_logits_bias", None)
        self._scale = getattr(self._decoder, "embed_scale", 1.0)
        self.layers = self._decoder.layers

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self._decoder.layernorm_embedding(self._words(tokens) + self._places(tokens, positions))
        return x

    def biases(self, positions: Tensor, mask: Tensor | None, cached: int) -> Iterator[Tensor | None]:
        return repeat(None if mask is None else mask[None, None], len(self.layers))

    def cross(self, states: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.layers:
            attention = layer.encoder_attn
            count = attention.num_heads
            yield heads_of(attention.k_proj(states), count), heads_of(attention.v_proj(states), count)

    def step(self, layer: Any, x: Tensor, bias: Tensor | None, encoded: Tensor, cache: EncoderDecoderCache) -> Tensor:
        after = layer(x, attention_mask=bias, encoder_hidden_states=encoded, past_key_values=cache)
        states: Tensor = after[0] if isinstance(after, tuple) else after
        return states

    def finish(self, x: Tensor) -> Tensor:
        return x

    def logits(self, x: Tensor) -> Tensor:
        y: Tensor = self._head(x)
        return y if self._bias is None else y + self._bias[0]

    def _windows(self, config: Any) -> tuple[int, int]:
        """Most tokens of a text, and of a source."""
        return config.max_position_embeddings, config.max_position_embeddings

    def _words(self, tokens: Tensor) -> Tensor:
        x: Tensor = self._decoder.embed_tokens(tokens.unsqueeze(0)) * self._scale
        return x

    def _places(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self._decoder.embed_positions(None, position_ids=positions)
        return x


class MBartDecoder(BartDecoder):
    """mBART (arXiv 2001.08210): BART with a norm behind the last layer too."""

    def finish(self, x: Tensor) -> Tensor:
        normed: Tensor = self._decoder.layer_norm(x)
        return normed


class BlenderbotSmallDecoder(BartDecoder):
    """Small Blenderbot (arXiv 2004.13637): BART that norms words before their places are added."""

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self._decoder.layernorm_embedding(self._words(tokens)) + self._places(tokens, positions)
        return x


class LedDecoder(BartDecoder):
    """LED (arXiv 2004.05150): BART behind an encoder that reads long sources with local attention."""

    def _windows(self, config: Any) -> tuple[int, int]:
        return config.max_decoder_position_embeddings, config.max_encoder_position_embeddings

    def _places(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return F.embedding(positions, self._decoder.embed_positions.weight)


class MarianDecoder(BartDecoder):
    """Marian's translation models: BART's layers, sines for places, no norm before the first layer."""

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self._words(tokens) + self._places(tokens, positions)


class PegasusDecoder(MarianDecoder):
    """Pegasus (arXiv 1912.08777), and Blenderbot with learned places: a norm behind the last layer only."""

    def finish(self, x: Tensor) -> Tensor:
        normed: Tensor = self._decoder.layer_norm(x)
        return normed


class PegasusXDecoder(PegasusDecoder):
    """Pegasus-X (arXiv 2208.04347): Pegasus for long sources; places are computed in the states' number format."""

    def _places(self, tokens: Tensor, positions: Tensor) -> Tensor:
        words = self._words(tokens)
        x: Tensor = self._decoder.embed_positions(words, position_ids=positions.unsqueeze(1))
        return x


class BigBirdPegasusDecoder(MarianDecoder):
    """Pegasus behind BigBird's encoder (arXiv 2007.14062)."""

    def finish(self, x: Tensor) -> Tensor:
        normed: Tensor = self._decoder.layernorm_embedding(x)
        return normed


class M2M100Decoder(PegasusDecoder):
    """M2M100 and NLLB (arXiv 2010.11125, 2207.04672): places begin behind the padding's id, and padding has none."""

    def _places(self, tokens: Tensor, positions: Tensor) -> Tensor:
        table = self._decoder.embed_positions
        padding = table.padding_idx
        x: Tensor = table.weights[torch.where(tokens == padding, padding, positions + padding + 1)]
        return x


def heads_of(x: Tensor, count: int) -> Tensor:
    """`[1, s, heads * D]` -> `[1, heads, s, D]`."""
    return x.view(1, x.shape[1], count, -1).transpose(1, 2)
