"""An output matrix as the product of two thin ones, before it is trained."""

import torch
from torch import Tensor

_DAMPING = 1e-4


def low_rank(output: Tensor, states: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(down `[r, H]`, up `[V, r]`): up @ down is nearest to `output` `[V, H]` in the logits of `states` `[n, H]`.

    Nearest in squares, and up to a number that is the same for all tokens, which no softmax sees. With C = E[s s^T] =
    R R^T these are the leading directions of output R (Eckart and Young, 1936).
    """
    wide = output - output.mean(dim=0)
    spread = states.T @ states / len(states)
    values, turns = torch.linalg.eigh(spread)
    lengths = (values.clamp(min=0) + _DAMPING * values.max()).sqrt()
    scaled = wide @ (turns * lengths)
    _, directions = torch.linalg.eigh(scaled.T @ scaled)
    kept = directions[:, -rank:]
    return kept.T @ (turns / lengths).T, scaled @ kept
