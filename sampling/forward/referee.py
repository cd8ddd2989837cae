"""A whole answer read by the target at once: at every place, how far its token lies below the best one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.runner import Runner

_BLOCKS = (64, 48)


@dataclass(frozen=True, slots=True)
class RefereeResult:
    """place: the first token that is not the target's best, beyond what number formats can tell apart; None: all are.

    behind: how far below the best a token lies at most, in logits. noise: how much logits of these places move
    between two ways to compute them.
    """

    place: int | None
    behind: float
    noise: float


@torch.inference_mode()
def refereed(runner: Runner, prompt: Sequence[int], output: Sequence[int], coarsest: float = 0.0) -> RefereeResult:
    """Whether a greedy answer is the target's own, token by token; no second run is needed.

    All rows are computed twice, in blocks of two sizes. A token may be behind by twice the largest difference
    between both, or twice the spacing of the format's numbers at that size. coarsest: that spacing at 1 in the format
    which wrote the answer, where it is coarser than the runner's.
    """
    first, other = (_rows(runner, prompt, output, block) for block in _BLOCKS)
    chosen = torch.tensor(list(output), device=first.device).unsqueeze(1)
    best = first.amax(-1)
    behind = torch.minimum(
        best - first.gather(1, chosen).squeeze(1), other.amax(-1) - other.gather(1, chosen).squeeze(1)
    )
    noise = float((first - other).abs().max())
    eps = max(torch.finfo(runner.model.dtype).eps, coarsest)
    allowed = 2 * torch.clamp(best.abs() * eps, min=noise)
    wrong = (behind > allowed).nonzero()
    return RefereeResult(int(wrong[0]) if len(wrong) else None, float(behind.max()), noise)


def _rows(runner: Runner, prompt: Sequence[int], output: Sequence[int], block: int) -> Tensor:
    """The rows `[n, V]` in float32 from which each token of the output would be chosen."""
    start = runner.read(prompt).tokens
    tokens, count, rows_found = [*start, *output][:-1], len(output), list[Tensor]()
    for begin in range(0, len(tokens), block):
        some = tokens[begin : begin + block]
        wanted = max(0, min(len(some), begin + len(some) - (len(tokens) - count)))
        rows_found.append(runner.forward(some, rows=wanted).logits.float())
    return torch.cat(rows_found)
