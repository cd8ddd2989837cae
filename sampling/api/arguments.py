"""Arguments of the plain functions, refused in the words of the command line."""

from collections.abc import Collection, Sequence
from operator import index
from typing import Any

from transformers import PreTrainedModel

from sampling.forward.runner import Runner
from utils.errors import UserError, wrong_value
from utils.logits_processor import LogitsProcessor
from utils.parameter import integer, number

_SHOWN = 60
_ARGUMENTS = {
    parameter.name: parameter
    for parameter in (
        integer("gamma", None, "", minimum=0),
        integer("gamma_min", None, "", minimum=1),
        integer("gamma_max", None, "", minimum=1),
        number("egag_ema_beta", None, "", minimum=0.0, below=1.0),
        integer("max_gen_len", None, "", minimum=1),
        integer("filler_top_k", None, "", minimum=1),
        integer("num_beams", None, "", minimum=1),
        integer("top_k", None, "", minimum=1),
        integer("min_length", None, "", minimum=0),
        number("alpha", None, "", minimum=0.0),
    )
}


def check(**arguments: Any) -> None:
    """Raises `UserError` for the first argument, by its name, that is not allowed."""
    for name, value in arguments.items():
        if isinstance(value, str):
            raise wrong_value(name, value, _ARGUMENTS[name].usage)
        _ARGUMENTS[name].checked(value)


def refuse_no_model(model: Any) -> None:
    """Raises `UserError` for what is neither a transformers model nor a runner."""
    if not isinstance(model, PreTrainedModel | Runner):
        raise UserError(
            f"{_short(model)} given as a model; expected a transformers model, or a runner of a loaded pair"
        )


def refuse_no_processor(processor: Any) -> None:
    """Raises `UserError` for what is neither a processor nor None."""
    if not isinstance(processor, LogitsProcessor | None):
        raise UserError(f"logits_processor {_short(processor)} given; expected an instance such as GreedyProcessor()")


def stop_ids(given: Any, target: Runner) -> frozenset[int]:
    """One id that ends a text, or several. Raises `UserError` for what is none of the target's ids."""
    try:
        ids = frozenset(map(index, given) if isinstance(given, Collection) else [index(given)])
    except TypeError:
        raise UserError(f"eos_tokens_id {_short(given)} given; expected an id, or a list of ids") from None
    wrong = sorted(id for id in ids if not 0 <= id < target.vocab_size)
    if wrong:
        raise UserError(f"eos_tokens_id {wrong[0]} given; expected 0 to {target.vocab_size - 1}")
    return ids


def prompt_ids(inputs: Sequence[int], target: Runner) -> list[int]:
    """The prompt as Python integers. Raises `UserError` for what is no list of the target's ids."""
    try:
        ids = [index(token) for token in inputs]
    except TypeError:
        raise UserError(
            f"inputs {_short(inputs)} given; expected a list of ids, such as tokenizer.encode(text)"
        ) from None
    wrong = [id for id in ids if not 0 <= id < target.vocab_size]
    if wrong:
        raise UserError(f"inputs hold the id {wrong[0]}; expected 0 to {target.vocab_size - 1}")
    return ids


def common_rows(models: Sequence[Runner], tokenizer: Any) -> int:
    """Rows that all models have. More rows are padding where a tokenizer has no more tokens than are common."""
    sizes = [one.vocab_size for one in models]
    rows = min(sizes)
    if rows < max(sizes) and (tokenizer is None or len(tokenizer) > rows):
        told = "no tokenizer tells which are padding" if tokenizer is None else f"the tokenizer has {len(tokenizer)}"
        raise UserError(
            f"target and drafter have vocabularies of {sizes[0]} and {sizes[1]} tokens, and {told}; "
            "expected models of one vocabulary, or tokenizer= for padded ones"
        )
    return rows


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
