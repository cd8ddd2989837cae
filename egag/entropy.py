"""Entropy of a next-token distribution, the signal that EGAG reads."""

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of softmax(logits) at temperature 1: `[...]` from raw logits `[..., V]`."""
    logs = torch.log_softmax(logits.float(), dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)
