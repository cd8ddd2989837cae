"""The entropy of a next-token distribution, which EGAG reads."""

import torch
from torch import Tensor


def entropy(logits: Tensor, probs: Tensor | None = None) -> Tensor:
    """Entropy in nats of softmax(logits) at temperature 1: `[...]` from raw logits `[..., V]`.

    probs: that softmax in float32, if already computed. A token with logit -inf adds nothing.

    Two softmaxes take a quarter of the time of one softmax and its exponential if most logits are the lowest finite
    number, as after a draft vocabulary. The reason is that exp is slow where it underflows.
    """
    wide = logits.float()
    known = torch.softmax(wide, dim=-1) if probs is None else probs
    return -(known * torch.log_softmax(wide, dim=-1)).nansum(dim=-1)
