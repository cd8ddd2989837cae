"""Where two greedy outputs part, and whether rounding explains it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sampling.forward.runner import Runner, prefill

Judgement = Literal["exact", "tie", "BUG"]

_BLOCK = 8


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first index at which the outputs differ (None: they are equal), and the verdict on it.

    margin: difference of the two candidates' logits at that place; noise: how much those two logits move
    between two ways to compute the same row, which is what the dtype can resolve there.
    """

    verdict: Judgement
    index: int | None = None
    margin: float | None = None
    noise: float | None = None


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first differing id; a proper prefix differs where it ends. None when equal."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def judge(target: Runner, prompt: Sequence[int], reference: Sequence[int], output: Sequence[int]) -> Divergence:
    """Compare a greedy output with the reference's and, where they part, ask the target again.

    The row at the parting is computed twice, once among other rows and once token by token: a tie is
    when in one of them neither candidate is further below the best token than twice the larger of the
    measured noise and the spacing of the dtype's numbers at that size. Anything else is a BUG.
    """
    index = first_difference(reference, output)
    if index is None:
        return Divergence("exact")
    if index in (len(reference), len(output)):
        return Divergence("BUG", index)
    start = target.read(prompt).tokens
    prefix = [*start, *reference[:index]]
    pair = [reference[index], output[index]]
    block, stepped = _row_in_block(target, prefix), _row_stepped(target, prefix, len(start))
    noise = float((block[pair] - stepped[pair]).abs().max())
    spacing = torch.finfo(target.model.dtype).eps * float(block[pair].abs().max())
    margin = min(abs(float(row[pair[0]] - row[pair[1]])) for row in (block, stepped))
    behind = min(float(row.max() - row[pair].min()) for row in (block, stepped))
    return Divergence("tie" if behind <= 2 * max(noise, spacing) else "BUG", index, margin, noise)


def _row_in_block(target: Runner, tokens: Sequence[int]) -> Tensor:
    """The row after the last token, computed among others as a verifying forward computes it."""
    start = max(0, len(tokens) - _BLOCK)
    prefill(target, tokens[:start])
    return target.forward(tokens[start:], rows=1).logits[0].float()


def _row_stepped(target: Runner, tokens: Sequence[int], prompt_length: int) -> Tensor:
    """The same row as autoregression computes it."""
    prefill(target, tokens[: prompt_length - 1])
    for token in tokens[prompt_length - 1 : -1]:
        target.forward([token], rows=0)
    return target.forward([tokens[-1]], rows=1).logits[0].float()
