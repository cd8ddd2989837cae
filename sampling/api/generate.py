"""Plain functions for code that has transformers models and lists of ids. All of them run the one decode loop.

Names and arguments are those that repositories of speculative decoding share. Code written for such a repository
therefore runs on this loop. `for event in sampling.decode(...)` gives every round as an event.
"""

import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedModel

from egag.egag import EntropyGamma
from egag.length_rule import FixedGamma, LengthRule
from sampling.api.arguments import (
    check,
    check_switches,
    common_rows,
    prompt_ids,
    refuse_no_model,
    refuse_no_processor,
    refuse_no_tokenizer,
    stop_ids,
)
from sampling.beam import BeamSearch
from sampling.drafter import Drafter, NullDrafter
from sampling.drafters.model import ModelDrafter
from sampling.drafters.target_first import TargetFirst
from sampling.forward.models.encoder_decoder.model import EncoderDecoderModel
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import ModelRunner, Runner, WholeRunner
from sampling.loading.adapt import adapted
from sampling.loading.refusals.checks import has_encoder, refuse_config, refuse_two_kinds
from sampling.loop import decode
from sampling.measure.metrics import RunMetrics
from sampling.verify.lossy import UnadjustedVerifier
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verifier import Verifier
from utils.errors import UserError
from utils.events import BeamRound, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor
from utils.token_ids import Ids

Model: TypeAlias = PreTrainedModel | Runner
_ONE_AT_A_TIME = RLock()
StopTokens: TypeAlias = int | Collection[int] | Tensor | None


def autoregressive_generate(
    inputs: Ids,
    model: Model,
    max_gen_len: int = 40,
    logits_processor: LogitsProcessor | None = None,
    eos_tokens_id: StopTokens = None,
    pad_token_id: int | None = None,
    use_cache: bool = True,
    debug: bool = False,
) -> list[int]:
    """The new ids of plain autoregressive decoding after `inputs` (ids).

    For an encoder-decoder model, `inputs` is the encoder's input and the result is the decoder's output. model: a
    transformers causal or encoder-decoder model, or a runner. logits_processor: greedy by default. eos_tokens_id: the
    id or ids that end the text, by default the model's own. use_cache: if False, every forward recomputes all tokens.
    debug: prints each round on stderr. pad_token_id is accepted and has no effect, because nothing is padded.

    Raises `UserError` for an empty prompt, a prompt that fills the context window, ids outside the model's vocabulary,
    and other disallowed arguments.
    """
    check_switches(use_cache=use_cache, debug=debug)
    with runners(use_cache, model) as (target,):
        account = account_of(
            target, NullDrafter(), FixedGamma(0), inputs, max_gen_len, logits_processor, eos_tokens_id, debug
        )
    return account.output_ids


def speculative_generate(
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
    """The new ids of speculative decoding (arXiv 2211.17192) and the acceptance rate alpha, accepted / drafted.

    The ids follow the target's own distribution. With the greedy processor they equal those of
    `autoregressive_generate`. drafter: a smaller model of the same vocabulary and kind. gamma: the number of drafts per
    round. use_egag: the drafter's entropy chooses a length between `gamma_min` and `gamma_max` (by default gamma),
    smoothed by `egag_ema_beta`. first_target: the target alone decodes the first token. tokenizer: `debug` prints text
    with it. It is also needed if the models' output matrices have different numbers of rows, to tell padding from
    another vocabulary. Other arguments: see `autoregressive_generate`. The rate is NaN if nothing was drafted.

    LOSSY: with `skip_sample_adjustment` the token after a rejection is drawn from p, not from the residual norm(max(p -
    q, 0)). The output's distribution then shifts towards the drafter; with the greedy processor it stays exact.
    """
    check_switches(
        use_egag=use_egag, use_cache=use_cache, skip_sample_adjustment=skip_sample_adjustment, first_target=first_target
    )
    rule = _rule(gamma, use_egag, gamma_min, gamma if gamma_max is None else gamma_max, egag_ema_beta)
    with runners(use_cache, target, drafter, tokenizer=tokenizer) as (big, small):
        drafts: Drafter = ModelDrafter(small)
        verifier = UnadjustedVerifier() if skip_sample_adjustment else RejectionVerifier()
        account = account_of(
            big, TargetFirst(drafts) if first_target else drafts, rule, inputs, max_gen_len, logits_processor,
            eos_tokens_id, debug, verifier, tokenizer,
        )  # fmt: skip
    return account.output_ids, rate(account)


def beam_search_generate(
    inputs: Ids,
    model: Model,
    max_gen_len: int = 40,
    num_beams: int = 4,
    top_k: int = 3,
    min_length: float = 5,
    alpha: float = 1.2,
    eos_tokens_id: StopTokens = None,
    pad_token_id: int | None = None,
    debug: bool = False,
    tokenizer: Any = None,
    use_cache: bool = True,
) -> list[int]:
    """The new ids of the best text that beam search finds; score and stopping rule: see `sampling.beam.BeamSearch`.

    num_beams: the number of texts that are kept. top_k: the number of continuations that are tried per text. The score
    of a text of `len` new ids is ln p / ((min_length + len) / (min_length + 1)) ** alpha. Other arguments: see
    `autoregressive_generate`. Beam search draws nothing and uses no processor.
    """
    check(num_beams=num_beams, top_k=top_k, min_length=min_length, alpha=alpha, max_gen_len=max_gen_len)
    check_switches(debug=debug, use_cache=use_cache)
    refuse_no_tokenizer(tokenizer)
    search = BeamSearch(num_beams, top_k, min_length, alpha)
    account = RunMetrics()
    with runners(use_cache, model) as (target,):
        stop = _stop(target, eos_tokens_id)
        for event in search.decode(target, prompt_ids(inputs, target), max_new_tokens=max_gen_len, stop=stop):
            account.add(event)
            if debug and isinstance(event, BeamRound):
                beams = ", ".join(f"{beam.score:.2f} {_shown(beam.tokens, tokenizer)}" for beam in event.beams)
                sys.stderr.write(f"round {event.number}: {beams}\n")
    return account.output_ids


def _rule(gamma: int, use_egag: bool, gamma_min: int, gamma_max: int, egag_ema_beta: float) -> LengthRule:
    check(gamma=gamma)
    if not use_egag:
        return FixedGamma(gamma)
    check(gamma_min=gamma_min, gamma_max=gamma_max, egag_ema_beta=egag_ema_beta)
    if gamma_min > gamma_max:
        raise UserError(f"gamma_min {gamma_min} is above gamma_max {gamma_max}")
    return EntropyGamma(gamma_min, gamma_max, egag_ema_beta)


@contextmanager
def runners(use_cache: bool, *models: Model, tokenizer: Any = None) -> Iterator[list[WholeRunner]]:
    """A runner for each model, over their common vocabulary; transformers models are restored afterwards.

    The models are changed in the meantime, so only one thread runs at a time. Raises `UserError` for an object that is
    no model, for encoder-decoder models mixed with decoder-only models, and for models that no runner supports. It also
    raises `UserError` for two vocabularies, unless a tokenizer shows that the difference is padding.
    """
    kind = ModelRunner if use_cache else RecomputingRunner
    with _ONE_AT_A_TIME, _given_back(models):
        refuse_two_kinds([name_of(model) for model in models], [encodes(model) for model in models])
        runners_there = [runner_for(model) for model in models]
        rows = common_rows(runners_there, tokenizer)
        yield [kind(runner.model, rows) for runner in runners_there]


@contextmanager
def _given_back(models: Sequence[Model]) -> Iterator[None]:
    """Restores a transformers model: what running it has changed is as before."""
    before = [(m, m.training, m.config._attn_implementation) for m in models if isinstance(m, PreTrainedModel)]
    try:
        yield
    finally:
        for model, training, attention in before:
            model.train(training)
            if model.config._attn_implementation != attention:
                model.set_attn_implementation(attention)


def runner_for(model: Model) -> Runner:
    """The runner of a transformers model. `sampling.decode` takes it as a target, and drafters take it as a model.

    A runner is returned unchanged. The model is tested on a few tokens first. It shares its weights with the runner and
    is set to evaluation mode. From then on the model uses this project's attention, also outside this loop. Raises
    `UserError` for a model whose cache cannot be rolled back, a model with bidirectional attention, and a model whose
    logits differ in the runner.
    """
    refuse_no_model(model)
    if isinstance(model, Runner):
        return model
    refuse_config(name_of(model), model.config)
    return ModelRunner(adapted(name_of(model), model))


def encodes(model: Model) -> bool:
    """Whether the model is an encoder-decoder model. Raises `UserError` for an object that is no model."""
    refuse_no_model(model)
    if isinstance(model, Runner):
        return isinstance(model.model, EncoderDecoderModel)
    return has_encoder(model.config)


def name_of(model: Model) -> str:
    """The name of a model in error messages: its class."""
    return type(model.model if isinstance(model, Runner) else model).__name__


def account_of(
    target: Runner,
    drafter: Drafter,
    gamma: LengthRule,
    inputs: Ids,
    max_gen_len: int,
    processor: LogitsProcessor | None,
    stop: StopTokens,
    debug: bool,
    verifier: Verifier | None = None,
    tokenizer: Any = None,
    watch: Callable[[Round], None] | None = None,
) -> RunMetrics:
    """The metrics of one generation, with the arguments of the public functions. watch: is called with each round."""
    check(max_gen_len=max_gen_len)
    check_switches(debug=debug)
    refuse_no_tokenizer(tokenizer)
    refuse_no_processor(processor, target)
    account = RunMetrics()
    events = decode(
        target,
        drafter,
        gamma,
        verifier or RejectionVerifier(),
        processor or GreedyProcessor(),
        prompt_ids(inputs, target),
        max_new_tokens=max_gen_len,
        stop=_stop(target, stop),
        seed=int(torch.randint(2**62, ())),
    )
    for event in events:
        account.add(event)
        if watch and isinstance(event, Round):
            watch(event)
        if debug and isinstance(event, Round):
            sys.stderr.write(_told(event, tokenizer) + "\n")
    return account


def rate(account: RunMetrics) -> float:
    """The acceptance rate, accepted / drafted; NaN if nothing was drafted."""
    return account.accepted / account.drafted if account.drafted else math.nan


def _stop(target: Runner, ids: StopTokens) -> frozenset[int]:
    """The ids that end a text: the given ids, or by default those of the model's generation config."""
    if ids is not None:
        return stop_ids(ids, target)
    config = getattr(getattr(target.model, "hf", None), "generation_config", None)
    config_ids = getattr(config, "eos_token_id", None)
    return frozenset(
        id for id in ([config_ids] if isinstance(config_ids, int) else config_ids or ()) if 0 <= id < target.vocab_size
    )


def _told(round: Round, tokenizer: Any) -> str:
    """One round as a line: the drafts, the number of accepted drafts, and the next token."""
    drafted = f"drafted {_shown(round.drafts, tokenizer)}, accepted {round.accepted} of {len(round.drafts)}"
    last = "" if round.next_token is None else f", then {_shown([round.next_token], tokenizer)}"
    return f"round {round.number}: {drafted}{last}"


def _shown(ids: Sequence[int], tokenizer: Any) -> str:
    """Ids as text if there is a tokenizer, otherwise as numbers."""
    return repr(tokenizer.decode(list(ids))) if tokenizer is not None and ids else str(list(ids))
