"""Is a model batch-invariant here? A row has to have the same bits whatever is fed with it, on its own states."""

from collections.abc import Sequence
from itertools import cycle, islice
from time import perf_counter
from typing import Protocol, Self

import torch
from torch import Tensor

from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.autotune_cache import choose
from sampling.forward.kernels.autotuning import ROWS, Times, TrialVerdict, autotune
from sampling.forward.runner import ModelRunner, has_one_width, prefill

COUNTS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 33, 65)
_ALONE = 8
# The rows behind them lie on both sides of a border of columns.
_BEFORE = 220
_DEAREST = 1.1
_TOY = 1e6


class Invariant(CausalModel, Protocol):
    """A model whose attention can be batch-invariant."""

    kernel: str | None

    def with_batch_invariance(self, on: bool) -> Self:
        """The same model, its attention batch-invariant or not."""
        ...


def batch_invariant_here(runner: ModelRunner, about: str, text: Sequence[int]) -> bool:
    """Whether it is: asked of the model once, then kept in the cache folder.

    runner: of a model whose attention is, or one whose forwards have one width. about: its sizes and format, on which
    the answer depends beside the machine. text: ids of any length, whose states are looked at.
    """
    question = "batch-invariant in one width" if has_one_width(runner) else "batch-invariant"
    return choose(question, about, lambda: _verdict(runner, text), timed=False)


def within_its_price(model: Invariant, about: str, text: Sequence[int]) -> bool:
    """Whether one row and five take at most 10 % longer than with attention that is not; asked once, as above.

    Not asked of a toy: calls are all that its forwards cost.
    """
    if model.num_layers * model.embedding.shape[1] ** 2 < _TOY:
        return True
    return choose("batch invariance at most 10 % slower", about, lambda: _priced(model, text))


@torch.inference_mode()
def first_difference(runner: ModelRunner, text: Sequence[int]) -> int | None:
    """The smallest of `COUNTS` that gives a row other bits than fewer rows do; None: no such."""
    runner, behind = _begun(runner.another(), text, COUNTS[-1])
    length, known = runner.length, list[Tensor]()
    for token in behind[:_ALONE]:
        known.append(runner.forward([token]).logits[0].clone())
    for count in COUNTS:
        runner.crop(length)
        if count > len(behind):
            break
        rows = runner.forward(behind[:count]).logits
        if not all(map(torch.equal, rows, known)):
            return count
        known += [row.clone() for row in rows[len(known) :]]
    return None


def _verdict(runner: ModelRunner, text: Sequence[int]) -> TrialVerdict:
    return TrialVerdict(first_difference(runner, text) is None, settled=True)


@torch.inference_mode()
def _priced(model: Invariant, text: Sequence[int]) -> TrialVerdict:
    sides = [_begun(ModelRunner(side), text, ROWS[-1]) for side in (model, model.with_batch_invariance(False))]

    def turn() -> list[Times]:
        return [tuple(_forward_s(runner, behind[:count]) for count in ROWS) for runner, behind in sides]

    return autotune(turn, lambda fastest: sum(fastest[0]) <= _DEAREST * sum(fastest[1]), otherwise=True)


def _begun(runner: ModelRunner, text: Sequence[int], most: int) -> tuple[ModelRunner, list[int]]:
    """The runner behind some of a text, and the tokens that follow, `most` or as many as its window takes."""
    model = runner.model
    before = min(_BEFORE, model.window // 2)
    tokens = [token % model.vocab_size for token in islice(cycle(text or (0,)), min(before + most, model.window))]
    prefill(runner, tokens[:before])
    return runner, tokens[before:]


def _forward_s(runner: ModelRunner, tokens: Sequence[int]) -> float:
    length, start = runner.length, perf_counter()
    runner.forward(tokens)
    seconds = perf_counter() - start
    runner.crop(length)
    return seconds
