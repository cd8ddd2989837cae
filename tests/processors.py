"""What transformers' own processors make of a text: the reference that shares no code with ours."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import generation

from sampling.methods.settings import PARAMETERS

FREQUENCY, PRESENCE = "frequency", "presence"


def theirs(text: str, logits: Tensor, tokens: Sequence[int], prompt: int, stop: Sequence[int] = ()) -> Tensor:
    """Probabilities `[1, V]` after `tokens`, the first `prompt` of which are the prompt, from logits `[1, V]`.

    text: a setting such as `nucleus 0.8 0.9 min_p=0.1`. transformers has no penalty by the output's counts, no forced
    tokens and no cut by standard deviations: these are written out here.
    """
    chosen = PARAMETERS["processor"].parse(text)
    options, ids = dict(chosen.options), torch.tensor([list(tokens)])
    output, scores = list(tokens[prompt:]), logits.double().clone()
    for processor in _of_text(options, prompt, stop):
        scores = processor(ids, scores)
    for token in set(output):
        scores[0, token] -= options.get(FREQUENCY, 0.0) * output.count(token) + options.get(PRESENCE, 0.0)
    for processor in _bans(options, prompt, stop):
        scores = processor(ids, scores)
    if len(output) < len(options.get("forced", ())):
        return torch.nn.functional.one_hot(torch.tensor([options["forced"][len(output)]]), logits.shape[1]).double()
    if chosen.name == "greedy":
        return torch.nn.functional.one_hot(scores.argmax(-1), logits.shape[1]).double()
    for warper in _of_rows(chosen.name, chosen.arguments, options):
        scores = warper(ids, scores)
    return scores.softmax(-1)


def _of_text(options: dict[str, Any], prompt: int, stop: Sequence[int]) -> Any:
    if bias := options.get("logit_bias"):
        yield generation.SequenceBiasLogitsProcessor({(token,): value for token, value in bias})
    if penalty := options.get("repetition"):
        yield generation.RepetitionPenaltyLogitsProcessor(penalty)


def _bans(options: dict[str, Any], prompt: int, stop: Sequence[int]) -> Any:
    if size := options.get("no_repeat_ngram"):
        yield generation.NoRepeatNGramLogitsProcessor(size)
    if least := options.get("min_tokens"):
        yield generation.MinNewTokensLengthLogitsProcessor(prompt, least, list(stop))
    if banned := options.get("banned"):
        yield generation.SuppressTokensLogitsProcessor(list(banned))


def _of_rows(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    temperature, *rest = arguments
    yield generation.TemperatureLogitsWarper(float(temperature))
    if name in ("topk", "topknucleus"):
        yield generation.TopKLogitsWarper(rest[0])
    if name in ("nucleus", "topknucleus"):
        yield generation.TopPLogitsWarper(rest[-1])
    if n := options.get("top_n_sigma"):
        yield lambda _, scores: scores.masked_fill(scores < scores.max() - n * _spread(scores), -torch.inf)
    for option, warper in (
        ("min_p", generation.MinPLogitsWarper),
        ("typical_p", generation.TypicalLogitsWarper),
        ("epsilon", generation.EpsilonLogitsWarper),
        ("eta", generation.EtaLogitsWarper),
    ):
        if option in options:
            yield warper(options[option])


def _spread(scores: Tensor) -> Tensor:
    return scores[scores.isfinite()].std(correction=0)
