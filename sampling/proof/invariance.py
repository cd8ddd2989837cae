"""Which numbers of rows give a row the same bits, and which operation of a model is the first that does not.

No drafter is needed: the same tokens are fed one by one and together, and every operation is compared with itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import Tensor

from sampling.forward.causal_model import CausalModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.proof.operations import Recording, recorded
from utils.errors import UserError

# How far apart a number and none are.
_NOT_A_NUMBER = 1 << 31
_LOGITS = "logits"


@dataclass(frozen=True, slots=True)
class OperationDifference:
    """An operation that gave rows other bits than alone: how many rows, and how far apart at most, in units in the last
    place (ULP)."""

    operation: str
    rows: int
    ulp: int


@dataclass(frozen=True, slots=True)
class CountResult:
    """What one number of rows came to. ulp: the largest difference of each operation, in order.

    first: the first operation that differs; None where all rows are those alone. logit: the largest difference of one.
    """

    rows: int
    first: OperationDifference | None
    ulp: Mapping[str, int]
    logit: float


def compare_counts(
    model: CausalModel, text: Sequence[int], counts: Sequence[int], context: int, runner: ModelRunner | None = None
) -> Iterator[CountResult]:
    """Each number of rows, compared with the same rows fed one by one behind `context` tokens of a text (ids).

    runner: one of this model whose forwards are compared as they are, by their logits alone: a graph's operations
    cannot be watched. Raises `UserError` for a model whose window is shorter, and as `recorded` does.
    """
    most = max(counts)
    if context + most > model.window:
        raise UserError(
            f"{context} tokens of context and {most} rows given; the model's window has {model.window} places"
        )
    tokens = [token % model.vocab_size for token in islice(cycle(text), context + most)]
    behind = tokens[context:]
    with recorded(model) if runner is None else nullcontext((model, Recording())) as (noting, recording):
        runner = ModelRunner(noting) if runner is None else runner.another()
        recording.begin(context)
        prefill(runner, tokens[:context])
        alone = [_results(runner, recording, [token]) for token in behind]
        for count in counts:
            runner.crop(context)
            yield _compared(count, _results(runner, recording, behind[:count]), alone[:count])


def _results(runner: ModelRunner, recording: Recording, tokens: Sequence[int]) -> dict[str, Tensor]:
    """Of every operation, the logits last."""
    recording.begin(len(tokens))
    logits = runner.forward(tokens).logits.clone()
    return {**recording.results, _LOGITS: logits}


def _compared(count: int, together: Mapping[str, Tensor], alone: Sequence[Mapping[str, Tensor]]) -> CountResult:
    first, ulp = None, dict[str, int]()
    for name, results in together.items():
        if not all(name in row and row[name].shape[1:] == results.shape[1:] for row in alone):
            continue  # what has a place for each column of the cache, too, has another size in each forward
        apart = ulps(results, torch.cat([row[name] for row in alone])).amax(1)
        ulp[name] = int(apart.max())
        if first is None and ulp[name]:
            first = OperationDifference(name, int((apart > 0).sum()), ulp[name])
    logits = torch.cat([row[_LOGITS] for row in alone])
    return CountResult(count, first, ulp, float((together[_LOGITS].float() - logits.float()).abs().max()))


def ulps(a: Tensor, b: Tensor) -> Tensor:
    """How far apart two tensors of one format are, place by place, in units in the last place of the larger number.

    Rounded up; equal numbers: 0. Example: float32, 1 and 1 + 2^-23 -> 1.
    """
    format = torch.finfo(a.dtype)
    wide, other = a.double(), b.double()
    larger = torch.maximum(wide.abs(), other.abs()).clamp(min=format.smallest_normal)
    unit = torch.exp2(larger.log2().floor()) * format.eps
    apart = ((wide - other).abs() / unit).ceil()
    return apart.nan_to_num(nan=0.0).long().masked_fill_(wide.isnan() ^ other.isnan(), _NOT_A_NUMBER)
