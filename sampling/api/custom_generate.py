"""A decoding method for transformers' `generate`: `model.generate(..., custom_generate=speculative(drafter))`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from egag.length_rule import FixedGamma
from sampling.api.arguments import check, refuse_no_model
from sampling.api.generate import Model, account_of, encodes, name_of, runners
from sampling.api.transformers_processors import processor_of
from sampling.drafter import NullDrafter
from sampling.drafters.model import ModelDrafter
from sampling.measure.metrics import RunMetrics
from utils.errors import UserError, one_of
from utils.logits_processor import LogitsProcessor

if TYPE_CHECKING:
    from transformers.generation.streamers import BaseStreamer

_IGNORED = (
    "prompt_lookup_num_tokens",
    "penalty_alpha",
    "dola_layers",
    "output_scores",
    "output_logits",
    "output_hidden_states",
    "output_attentions",
)
_CRITERIA = (MaxLengthCriteria, EosTokenCriteria)


@dataclass
class SpeculativeOutput(GenerateDecoderOnlyOutput):
    """The output of transformers, `sequences` `[1, n]`, with the metrics of the run: rounds, drafts and times."""

    metrics: RunMetrics | None = None


def speculative(
    drafter: Model | None = None, gamma: int = 5, streamer: "BaseStreamer | None" = None
) -> Callable[..., Tensor | SpeculativeOutput]:
    """A decoding method for transformers' `generate`.

    Without a drafter it is plain autoregression in this project's loop.

    It reads lengths, stop tokens, `do_sample`, `temperature`, `top_k` and `top_p` from the generation config, and takes
    the processors that `processor_of` knows (`repetition_penalty`, `min_p`, ...). With `return_dict_in_generate` it
    returns a `SpeculativeOutput`. It raises `UserError` for a batch of several prompts, padding, beams, other
    processors, other stopping criteria, scores and hidden states, and an encoder-decoder model.

    streamer: an object such as transformers' `TextStreamer`. It receives the prompt `[1, n]`, the new ids of each round
    `[m]`, and the end. Pass it here and not to `generate`: `generate` does not pass its streamer on to a custom method.
    """

    check(gamma=gamma)
    if drafter is not None:
        refuse_no_model(drafter)

    def decoding_method(
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: Collection[Any],
        stopping_criteria: Collection[Any],
        generation_config: GenerationConfig,
        **inputs: Any,
    ) -> Tensor | SpeculativeOutput:
        _refuse_encoder(model)
        _check(input_ids, stopping_criteria, generation_config, inputs.get("attention_mask"))
        processor = processor_of(logits_processor, generation_config, input_ids.shape[1])
        models = [model] if drafter is None else [model, drafter]
        account = _decoded(models, input_ids, generation_config, processor, gamma, streamer)
        sequences = torch.cat([input_ids, input_ids.new_tensor([account.output_ids])], dim=1)
        wrapped = generation_config.return_dict_in_generate
        return SpeculativeOutput(sequences=sequences, metrics=account) if wrapped else sequences

    return decoding_method


def _decoded(
    models: Sequence[Model],
    ids: Tensor,
    config: GenerationConfig,
    processor: LogitsProcessor,
    gamma: int,
    streamer: "BaseStreamer | None",
) -> RunMetrics:
    """The account of a run behind the prompt `[1, n]`; models: the target, and a drafter where there is one."""
    with runners(True, *models) as (target, *small):
        if streamer is not None:
            streamer.put(ids.cpu())
        account = account_of(
            target,
            ModelDrafter(small[0]) if small else NullDrafter(),
            FixedGamma(gamma if small else 0),
            ids[0].tolist(),
            config.max_length - ids.shape[1],
            processor,
            config.eos_token_id,
            debug=False,
            watch=None if streamer is None else lambda round: streamer.put(torch.tensor(round.emitted)),
        )
    if streamer is not None:
        streamer.end()
    return account


def _refuse_encoder(model: PreTrainedModel) -> None:
    """Raises `UserError` for an encoder-decoder model: `generate` runs the encoder, and its input is not passed on."""
    if encodes(model):
        raise UserError(
            f"{name_of(model)} is an encoder-decoder model; expected a decoder-only model, or use "
            "sampling.speculative_generate_encoder_decoder"
        )


def _check(ids: Tensor, criteria: Collection[Any], config: GenerationConfig, mask: Tensor | None) -> None:
    """Raises `UserError` for every option that would be silently ignored."""
    if (config.num_beams or 1) > 1:
        raise UserError(f"num_beams {config.num_beams} given; expected 1, or use sampling.beam_search_generate")
    for name in _IGNORED:
        if getattr(config, name, None):
            raise UserError(f"{name} is not part of this loop; call generate without it, or without custom_generate")
    if ids.shape[0] != 1:
        raise UserError(f"{ids.shape[0]} prompts given; expected one at a time")
    if mask is not None and not bool((mask == 1).all()):
        raise UserError("the attention mask hides tokens; expected a prompt without padding")
    unknown = [type(part).__name__ for part in criteria if not isinstance(part, _CRITERIA)]
    if unknown:
        raise UserError(
            f"{unknown[0]} is not part of this loop; expected {one_of(kind.__name__ for kind in _CRITERIA)}"
        )
