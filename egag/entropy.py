"""Entropy of a next-token distribution, the signal that EGAG reads."""

import torch
from torch import Tensor


def entropy(logits: Tensor, probs: Tensor | None = None) -> Tensor:
    """Entropy in nats of softmax(logits) at temperature 1: `[...]` from raw logits `[..., V]`.

    probs: that softmax in float32, where it is known already.

    Two softmaxes take a quarter of the time of one and its exponential where most logits are the lowest there is, as
    behind a draft vocabulary: exp is slow where it underflows. A token that is ruled out by -inf adds nothing.
    """
    wide = logits.float()
    known = torch.softmax(wide, dim=-1) if probs is None else probs
    return -(known * torch.log_softmax(wide, dim=-1)).nansum(dim=-1)
