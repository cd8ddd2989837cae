"""The row behind a text, computed in two ways: how far they differ is what the number format can resolve there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sampling.forward.runner import Runner, prefill

_BLOCK = 8


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """A row of logits `[V]` in float32, computed among other rows as a verifying forward does, and token by token.

    eps: spacing of the format's numbers at 1.
    """

    block: Tensor
    stepped: Tensor
    eps: float

    def changed(self, change: Callable[[Tensor], Tensor]) -> "NoiseFloor":
        """The same of both rows after a change of logits `[1, V]`."""
        block, stepped = (change(row.unsqueeze(0))[0] for row in (self.block, self.stepped))
        return replace(self, block=block, stepped=stepped)


def noise_floor(runner: Runner, prompt: Sequence[int], said: Sequence[int]) -> NoiseFloor:
    """The row that follows a prompt and what was said."""
    start = runner.read(prompt).tokens
    tokens = [*start, *said]
    eps = torch.finfo(runner.model.dtype).eps
    return NoiseFloor(_in_block(runner, tokens), _stepped(runner, tokens, len(start)), eps)


def _in_block(runner: Runner, tokens: Sequence[int]) -> Tensor:
    start = max(0, len(tokens) - _BLOCK)
    prefill(runner, tokens[:start])
    return runner.forward(tokens[start:], rows=1).logits[0].float()


def _stepped(runner: Runner, tokens: Sequence[int], prompt_length: int) -> Tensor:
    prefill(runner, tokens[: prompt_length - 1])
    for token in tokens[prompt_length - 1 : -1]:
        runner.forward([token], rows=0)
    return runner.forward([tokens[-1]], rows=1).logits[0].float()
