"""What a draft is worth while a drafter learns: distances to the target's distribution, and weights of later drafts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_ETA = 3.0
_LEAST = 1e-6

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(p: Tensor, logs: Tensor) -> Tensor:
    """-sum p log q, nats a token, over rows: p `[n, D]`, logs = log q `[n, D]`."""
    return -(p * logs).sum(dim=-1).mean()


def negative_log_acceptance(p: Tensor, logs: Tensor) -> Tensor:
    """-log alpha, where alpha = sum min(p, q) is how often a drawn draft is accepted (LK loss, arXiv 2602.23881)."""
    return -acceptance(p, logs).clamp(min=_LEAST).log().mean()


def hybrid(p: Tensor, logs: Tensor) -> Tensor:
    """w KL + (1 - w) TV with w = exp(-3 alpha), alpha the mean over rows and not learned from (arXiv 2602.23881).

    TV = 1 - alpha. Far from the target it is the divergence that has a slope everywhere, near it the acceptance itself.
    """
    accepted = acceptance(p, logs).mean()
    weight = torch.exp(-_ETA * accepted.detach())
    divergence = cross_entropy(p, logs) + torch.special.xlogy(p, p).sum(dim=-1).mean()
    mixed: Tensor = weight * divergence + (1 - weight) * (1 - accepted)
    return mixed


def acceptance(p: Tensor, logs: Tensor) -> Tensor:
    """alpha of each row `[n]`."""
    return torch.minimum(p, logs.exp()).sum(dim=-1)


LOSSES: Mapping[str, Loss] = {"kl": cross_entropy, "lk": hybrid, "acceptance": negative_log_acceptance}
UNITS: Mapping[str, str] = {
    "kl": "cross-entropy to the target, nats a token",
    "lk": "divergence and total variation to the target, mixed",
    "acceptance": "-log of the acceptance",
}


@dataclass(frozen=True, slots=True)
class Objective:
    """loss: a name of `LOSSES`. decay: in the loss the first draft weighs 1, each later one so much of the one before.

    FastMTP (arXiv 2509.18362) has a decay of 0.6.
    """

    loss: str = "kl"
    decay: float = 0.8
