"""Encoder-decoder models: the encoder reads a prompt once, the decoder is a causal model like any other.

Keys and values that the decoder has of the prompt never change: they are the `memory` of the sequence's cache. Those
of its own text are rows of that cache, which rolls back as it does for every model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from sampling.forward.caches.transformers_cache import TransformersCache
from sampling.forward.causal_model import PromptReading
from sampling.forward.models.adapter import TransformersWeights
from sampling.forward.models.encoder_decoder.families import FAMILIES
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class AnswerOpening:
    """How a checkpoint has its answers begin, and which tokens they never hold, or not yet.

    tokens: the decoder's start token, and the token that is forced behind it where there is one (the target
    language of mBART, say): both stand in the text before the first round, and neither is output. banned:
    ids that never follow, such as Marian's padding, whose logit of 0 would otherwise win. shortest: tokens of
    the text, these included, before one of `ends` may follow (`min_length`, as summaries of BART have it).
    """

    tokens: tuple[int, ...]
    banned: tuple[int, ...] = ()
    shortest: int = 0
    ends: tuple[int, ...] = ()

    @classmethod
    def of(cls, name: str, model: PreTrainedModel) -> "AnswerOpening":
        """What the checkpoint's generation settings ask for. Raises `UserError` where no start token is named."""
        settings: Any = model.generation_config
        start = settings.decoder_start_token_id
        start = getattr(model.config, "decoder_start_token_id", None) if start is None else start
        if start is None:
            raise UserError(
                f"{name}: its configuration names no decoder_start_token_id; expected a checkpoint that says "
                "which token an answer begins with"
            )
        forced = settings.forced_bos_token_id
        banned = tuple(words[0] for words in settings.bad_words_ids or () if len(words) == 1)
        shortest = max(settings.min_length or 0, 1 + (settings.min_new_tokens or 0))
        ends = settings.eos_token_id
        ends = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
        return cls((start,) if forced is None else (start, forced), banned, shortest, ends)


@dataclass(frozen=True, slots=True)
class Memory:
    """What the decoder sees of a source: the encoder's states `[1, s, H]`, and each layer's keys and values of them."""

    states: Tensor
    cross: DynamicCache


class AllowedTokens:
    """Logits without the tokens that an answer may not hold, or not yet."""

    def __init__(self, opening: AnswerOpening, device: torch.device) -> None:
        self._shortest = opening.shortest
        self._banned, self._ends = (
            torch.tensor(ids, dtype=torch.long, device=device) for ids in (opening.banned, opening.ends)
        )

    def __call__(self, logits: Tensor, positions: Tensor) -> Tensor:
        """The rows at these positions `[m]`, `[m, V]`."""
        low = torch.finfo(logits.dtype).min
        if len(self._banned):
            logits = logits.index_fill(1, self._banned, low)
        if len(self._ends) and self._shortest > 1:
            early = (positions + 1 < self._shortest).unsqueeze(1)
            logits = torch.where(early, logits.index_fill(1, self._ends, low), logits)
        return logits


class EncoderDecoderModel(TransformersWeights):
    """A model of one of `FAMILIES`."""

    def __init__(self, model: PreTrainedModel, opening: AnswerOpening) -> None:
        super().__init__(model)
        self.opening = opening
        self._decoder = FAMILIES[model.config.model_type](model)
        self._allowed = AllowedTokens(opening, self.device)
        self.num_layers = len(self._decoder.layers)
        self.window: int = self._decoder.window
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `CausalModel.read`. Raises `UserError` for a prompt that is longer than the encoder's window."""
        if len(prompt) > self._decoder.source_window:
            raise UserError(
                f"the prompt has {len(prompt)} tokens; expected at most {self._decoder.source_window}, "
                "which the encoder can read"
            )
        source = torch.tensor([list(prompt)], device=self.device)
        states = self.hf.get_encoder()(input_ids=source).last_hidden_state
        cross = DynamicCache()
        for layer, (keys, values) in enumerate(self._decoder.cross(states)):
            cross.update(keys, values, layer)
        return PromptReading(list(self.opening.tokens), tuple(prompt), Memory(states, cross))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: TransformersCache,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`; the decoder's layers, numbered as `decoder_hidden_states` are."""
        memory = cache.memory
        if not isinstance(memory, Memory):
            raise ValueError("the decoder has nothing to answer: read a prompt first")
        both = EncoderDecoderCache(cache.view, memory.cross)
        x = self._decoder.embed(tokens, positions)
        biases = self._decoder.biases(positions, mask, cache.length)
        states = [x]
        for layer, bias in zip(self._decoder.layers, biases, strict=True):
            x = self._decoder.step(layer, x, bias, memory.states, both)
            states.append(x)
        states[-1] = x = self._decoder.finish(x)
        logits = self._allowed(self._decoder.logits(x[0, len(tokens) - rows :]), positions[len(tokens) - rows :])
        return logits, {layer: states[layer][0] for layer in hidden}
