"""Checks of the arguments of the plain functions, with the error messages of the command line."""

from collections.abc import Sequence
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sampling.forward.runner import Runner
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor
from utils.parameter import MOST_TOKENS, drafts, integer, number
from utils.text import quoted
from utils.token_ids import Ids, known, one_or_more, token_ids

_ROUNDING = 1e-3
_ARGUMENTS = {
    parameter.name: parameter
    for parameter in (
        drafts("gamma", None, "", minimum=0),
        drafts("gamma_min", None, "", minimum=1),
        drafts("gamma_max", None, "", minimum=1),
        number("egag_ema_beta", None, "", minimum=0.0, below=1.0),
        integer("max_gen_len", None, "", minimum=1, maximum=MOST_TOKENS),
        integer("filler_top_k", None, "", minimum=1, maximum=64),
        integer("num_beams", None, "", minimum=1, maximum=1024),
        integer("top_k", None, "", minimum=1, maximum=1024),
        number("min_length", None, "", minimum=0.0),
        number("alpha", None, "", minimum=0.0, maximum=10.0),
    )
}


def check(**arguments: Any) -> None:
    """Raises `UserError` for the first argument with a disallowed value; arguments are passed by name."""
    for name, value in arguments.items():
        if not isinstance(value, Number):
            raise UserError(f"{name}: {quoted(value)} given; expected {_ARGUMENTS[name].usage}")
        _ARGUMENTS[name].checked(value)


def check_switches(**arguments: Any) -> None:
    """Raises `UserError` for the first argument that is neither True nor False; arguments are passed by name."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise UserError(f"{name}: {quoted(value)} given; expected True or False")


def refuse_no_model(model: Any) -> None:
    """Raises `UserError` for an object that is neither a transformers model nor a runner."""
    if not isinstance(model, PreTrainedModel | Runner):
        raise UserError(
            f"{quoted(model)} given as a model; expected a transformers model, or a runner of a loaded pair"
        )


def refuse_no_processor(processor: Any, target: Runner) -> None:
    """Raises `UserError` for an object that is no processor, or a custom processor that returns no probabilities."""
    if not isinstance(processor, LogitsProcessor | None):
        raise UserError(f"logits_processor {quoted(processor)} given; expected an instance such as GreedyProcessor()")
    if processor is None or type(processor).__module__ == LogitsProcessor.__module__:
        return
    logits = torch.zeros(2, target.vocab_size, device=target.device)
    probs = processor(logits)
    if not isinstance(probs, Tensor) or probs.shape != logits.shape or probs.dtype != torch.float32:
        raise UserError(f"{type(processor).__name__} returned {_described(probs)}; expected float32 {_size(logits)}")
    if not bool((probs >= 0).all() and ((probs.sum(-1) - 1).abs() < _ROUNDING).all()):
        raise UserError(f"{type(processor).__name__} returned rows that are no probabilities; expected sums of 1")


def refuse_no_tokenizer(tokenizer: Any) -> None:
    """Raises `UserError` for an object that is neither a tokenizer nor None."""
    if tokenizer is not None and not (hasattr(tokenizer, "decode") and hasattr(tokenizer, "__len__")):
        raise UserError(f"tokenizer {quoted(tokenizer)} given; expected a transformers tokenizer")


def stop_ids(ids: Any, target: Runner) -> frozenset[int]:
    """The stop tokens as a set, from one id or several.

    Raises `UserError` for an id outside the target's vocabulary.
    """
    return frozenset(known("eos_tokens_id", one_or_more("eos_tokens_id", ids), target.vocab_size))


def prompt_ids(inputs: Ids, target: Runner) -> Sequence[int]:
    """The prompt as Python integers. Raises `UserError` unless it is a list of ids of the target's vocabulary."""
    return known("inputs", token_ids("inputs", inputs), target.vocab_size)


def common_rows(models: Sequence[Runner], tokenizer: Any) -> int:
    """The number of vocabulary rows that all models have.

    Further rows count as padding if the tokenizer has no more tokens than that. Raises `UserError` if they are no
    padding, or if no tokenizer is given to tell.
    """
    refuse_no_tokenizer(tokenizer)
    sizes = [model.vocab_size for model in models]
    rows = min(sizes)
    if rows < max(sizes) and (tokenizer is None or len(tokenizer) > rows):
        reason = "no tokenizer tells which are padding" if tokenizer is None else f"the tokenizer has {len(tokenizer)}"
        raise UserError(
            f"target and drafter have vocabularies of {sizes[0]} and {sizes[1]} tokens, and {reason}; "
            "expected models of one vocabulary, or tokenizer= for padded ones"
        )
    return rows


def _described(value: Any) -> str:
    """A short description of a returned value."""
    return f"{value.dtype} {_size(value)}" if isinstance(value, Tensor) else quoted(value)


def _size(tensor: Tensor) -> str:
    return str(list(tensor.shape))
