"""The logits processors that transformers' `generate` makes, as one processor of ours."""

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

from transformers import GenerationConfig
from transformers.generation import logits_process as theirs

from sampling.methods.choices import CUTOFFS, TEXT_PROCESSORS, make_processor
from utils.errors import UserError, one_of
from utils.logits_processor import LogitsProcessor
from utils.parameter import ChosenPart
from utils.sampling_parameters import MIN_TOKENS

_OF_THE_CONFIG = (theirs.TemperatureLogitsWarper, theirs.TopKLogitsWarper, theirs.TopPLogitsWarper)
_ALL = 2**31 - 1
_ORDER = [*TEXT_PROCESSORS, *CUTOFFS]

_OPTIONS: dict[type, tuple[str, Callable[[Any, int], Any]]] = {
    theirs.SequenceBiasLogitsProcessor: ("logit_bias", lambda part, prompt: _single(part.sequence_bias)),
    theirs.RepetitionPenaltyLogitsProcessor: ("repetition", lambda part, prompt: part.penalty),
    theirs.NoRepeatNGramLogitsProcessor: ("no_repeat_ngram", lambda part, prompt: part.ngram_size),
    theirs.MinLengthLogitsProcessor: (MIN_TOKENS.name, lambda part, prompt: max(0, part.min_length - prompt)),
    theirs.MinNewTokensLengthLogitsProcessor: (MIN_TOKENS.name, lambda part, prompt: part.min_new_tokens),
    theirs.SuppressTokensLogitsProcessor: ("banned", lambda part, prompt: tuple(part.suppress_tokens.tolist())),
    theirs.MinPLogitsWarper: ("min_p", lambda part, prompt: part.min_p),
    theirs.TypicalLogitsWarper: ("typical_p", lambda part, prompt: part.mass),
    theirs.EpsilonLogitsWarper: ("epsilon", lambda part, prompt: part.epsilon),
    theirs.EtaLogitsWarper: ("eta", lambda part, prompt: float(part.epsilon)),
}
"""What each of theirs is called here, and how its setting is read behind a prompt of so many tokens."""


def processor_of(parts: Collection[Any], config: GenerationConfig, prompt: int) -> LogitsProcessor:
    """One processor that does what theirs do in their order. Temperature, top-k and top-p are the config's.

    prompt: its tokens. Raises `UserError` for a part that has no counterpart here, for one given twice, and for
    another order.
    """
    options = list[tuple[str, Any]]()
    for part in parts:
        if isinstance(part, _OF_THE_CONFIG):
            continue
        name, value = _option(part, prompt)
        if name == MIN_TOKENS.name and options and options[-1][0] == name:  # generate gives a least length twice
            value = max(value, options.pop()[1])
        options.append((name, value))
    _refuse_order([name for name, _ in options])
    given = tuple((name, value) for name, value in options if value)
    if not config.do_sample:
        return make_processor(ChosenPart("greedy", (), given))
    temperature, top_p = (1.0 if value is None else value for value in (config.temperature, config.top_p))
    return make_processor(ChosenPart("topknucleus", (temperature, config.top_k or _ALL, top_p), given))


def _option(part: Any, prompt: int) -> tuple[str, Any]:
    if type(part) not in _OPTIONS:
        known = (kind.__name__ for kind in (*_OF_THE_CONFIG, *_OPTIONS))
        raise UserError(f"{type(part).__name__} is not part of this loop; expected {one_of(known)}")
    for detail, usual in (("min_tokens_to_keep", 1), ("prompt_ignore_length", None)):
        if (value := getattr(part, detail, usual)) != usual:
            raise UserError(f"{type(part).__name__}: {detail} {value} given; expected {usual}")
    name, read = _OPTIONS[type(part)]
    return name, read(part, prompt)


def _refuse_order(names: list[str]) -> None:
    if any(_ORDER.index(name) <= _ORDER.index(before) for before, name in pairwise(names)):
        raise UserError(f"processors in the order {', '.join(names)} given; expected each once, in {', '.join(_ORDER)}")


def _single(bias: dict[tuple[int, ...], float]) -> tuple[tuple[int, float], ...]:
    """Raises `UserError` for a sequence of several tokens."""
    for sequence in bias:
        if len(sequence) > 1:
            raise UserError(f"sequence_bias of {list(sequence)} given; expected single tokens")
    return tuple((token, value) for (token,), value in bias.items())
