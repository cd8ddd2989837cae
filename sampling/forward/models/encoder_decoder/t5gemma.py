"""T5Gemma's decoder (arXiv 2504.06225): Gemma 2 behind an encoder, with windows in every other layer."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

from sampling.forward.caches.transformers_cache import column_positions
from sampling.forward.models.encoder_decoder.decoders import Decoder, heads_of
from sampling.forward.models.windows import windows_of


class T5GemmaDecoder(Decoder):
    """Rotary positions and a mask for each type of layer."""

    def __init__(self, model: Any) -> None:
        self._config = model.config.decoder
        self.window = self._config.max_position_embeddings
        self.source_window = model.config.encoder.max_position_embeddings
        self._decoder, self._head = model.get_decoder(), model.lm_head
        self.layers = self._decoder.layers
        self._windows = windows_of(self._config)
        self._rotary: tuple[Tensor, Tensor] | None = None

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self._decoder.embed_tokens(tokens.unsqueeze(0))
        x = x * torch.tensor(self._config.hidden_size**0.5, dtype=x.dtype)
        self._rotary = self._decoder.rotary_emb(x, positions.unsqueeze(0))
        return x

    def biases(self, positions: Tensor, mask: Tensor | None, cached: int) -> Iterator[Tensor | None]:
        dtype = self._head.out_proj.weight.dtype
        if mask is None:
            mask = torch.zeros(len(positions), cached + len(positions), dtype=dtype, device=positions.device)
        keys = column_positions(cached, positions)
        for layer_type in self._config.layer_types:
            window = self._windows.get(layer_type)
            yield (mask if window is None else window.hide(mask, positions, keys))[None, None]

    def cross(self, states: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.layers:
            attention = layer.cross_attn
            count = self._config.num_key_value_heads
            yield heads_of(attention.k_proj(states), count), heads_of(attention.v_proj(states), count)

    def step(self, layer: Any, x: Tensor, bias: Tensor | None, encoded: Tensor, cache: EncoderDecoderCache) -> Tensor:
        after: Tensor = layer(
            x,
            position_embeddings=self._rotary,
            attention_mask=bias,
            past_key_values=cache,
            use_cache=True,
            encoder_hidden_states=encoded,
        )
        return after

    def finish(self, x: Tensor) -> Tensor:
        normed: Tensor = self._decoder.norm(x)
        return normed

    def logits(self, x: Tensor) -> Tensor:
        y: Tensor = self._head(x)
        cap = self._config.final_logit_softcapping
        return y if cap is None else torch.tanh(y / cap) * cap
