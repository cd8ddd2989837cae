"""The plain functions under the names that code for encoder-decoder models calls.

`autoregressive_generate` and `speculative_generate` accept encoder-decoder models too. The two functions here call
them. They refuse a decoder-only model, which would continue the source instead of reading it.
"""

from typing import Any

from sampling.api.generate import (
    Model,
    StopTokens,
    autoregressive_generate,
    encodes,
    name_of,
    speculative_generate,
)
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor
from utils.token_ids import Ids


def autoregressive_generate_encoder_decoder(
    inputs: Ids,
    model: Model,
    max_gen_len: int = 40,
    logits_processor: LogitsProcessor | None = None,
    eos_tokens_id: StopTokens = None,
    pad_token_id: int | None = None,
    use_cache: bool = True,
    debug: bool = False,
) -> list[int]:
    """The decoder's new ids by plain autoregressive decoding; `inputs` is the source (ids) that the encoder reads.

    The result leaves out the decoder's start token and a forced first token. These generation settings of the
    model apply: the forced tokens, `eos_token_id`, `min_length`, `min_new_tokens` and single `bad_words_ids`. model: a
    transformers model of a family in docs/models.md, or a `ModelRunner`. Other arguments: see
    `autoregressive_generate`.

    Raises `UserError` for a decoder-only model, an empty source, or a source that the encoder cannot read.
    """
    _refuse_decoder_only("autoregressive_generate", model)
    return autoregressive_generate(
        inputs, model, max_gen_len, logits_processor, eos_tokens_id, pad_token_id, use_cache, debug
    )


def speculative_generate_encoder_decoder(
    inputs: Ids,
    drafter: Model,
    target: Model,
    tokenizer: Any = None,
    gamma: int = 5,
    use_egag: bool = False,
    gamma_min: int = 1,
    gamma_max: int | None = None,
    egag_ema_beta: float = 0.0,
    logits_processor: LogitsProcessor | None = None,
    max_gen_len: int = 40,
    eos_tokens_id: StopTokens = None,
    pad_token_id: int | None = None,
    use_cache: bool = True,
    skip_sample_adjustment: bool = False,
    first_target: bool = True,
    debug: bool = False,
) -> tuple[list[int], float]:
    """The decoder's new ids by speculative decoding, and the acceptance rate; `inputs` is the source (ids).

    Drafter and target each read the source with their own encoder. The ids: see
    `autoregressive_generate_encoder_decoder`. The rate and other arguments: see `speculative_generate`.

    LOSSY with `skip_sample_adjustment`, see `speculative_generate`.

    Raises `UserError` if either model is decoder-only.
    """
    _refuse_decoder_only("speculative_generate", target, drafter)
    return speculative_generate(
        inputs, drafter, target, tokenizer, gamma, use_egag, gamma_min, gamma_max, egag_ema_beta, logits_processor,
        max_gen_len, eos_tokens_id, pad_token_id, use_cache, skip_sample_adjustment, first_target, debug,
    )  # fmt: skip


def _refuse_decoder_only(meant: str, *models: Model) -> None:
    """Raises `UserError` for a decoder-only model. meant: the name of the function for such a model."""
    for model in models:
        if not encodes(model):
            raise UserError(
                f"{name_of(model)} is a decoder-only model; expected an encoder-decoder model, or use sampling.{meant}"
            )
