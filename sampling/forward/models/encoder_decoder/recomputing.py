"""Encoder-decoder models whose decoder we do not run layer by layer: each forward reads the answer from its start."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from sampling.forward.caches.transformers_cache import ChainCache
from sampling.forward.causal_model import PromptReading
from sampling.forward.chains_only import chains_only
from sampling.forward.models.adapter import TransformersWeights
from sampling.forward.models.encoder_decoder.model import AllowedTokens, AnswerOpening
from sampling.forward.models.windows import context_length


class RecomputingDecoderModel(TransformersWeights):
    """A model of one of `RECOMPUTED`. Its own forward makes the masks of a chain; the encoder reads a prompt once."""

    trees = False
    chains_because = "its decoder runs without a cache"

    def __init__(self, model: PreTrainedModel, opening: AnswerOpening) -> None:
        super().__init__(model)
        decoder = model.config.get_text_config(decoder=True)
        self.opening, self._allowed = opening, AllowedTokens(opening, self.device)
        self.num_layers: int = getattr(decoder, "num_decoder_layers", None) or decoder.num_hidden_layers
        self.window = context_length(decoder)
        self.vocab_size = len(model.get_output_embeddings().weight)

    def new_cache(self) -> ChainCache:
        """See `CausalModel.new_cache`."""
        return ChainCache(chains_only(self), *self._cache_arguments)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `CausalModel.read`."""
        source = torch.tensor([list(prompt)], device=self.device)
        states = self.hf.get_encoder()(input_ids=source, return_dict=True).last_hidden_state
        return PromptReading(list(self.opening.tokens), tuple(prompt), states)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: Any,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`; the decoder's layers, numbered as `decoder_hidden_states` are."""
        if cache.memory is None:
            raise ValueError("the decoder has nothing to answer: read a prompt first")
        cache.tokens[cache.length :] = tokens.tolist()
        output = self.hf(
            encoder_outputs=BaseModelOutput(last_hidden_state=cache.memory),
            decoder_input_ids=torch.tensor([cache.tokens], device=self.device),
            use_cache=False,
            output_hidden_states=bool(hidden),
            return_dict=True,
        )
        first = len(tokens) - rows
        logits = self._allowed(output.logits[0, cache.length + first :], positions[first:])
        return logits, {layer: output.decoder_hidden_states[layer][0, cache.length :] for layer in hidden}
