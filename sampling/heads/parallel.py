"""Medusa and Hydra heads: each predicts one place further ahead from the same hidden state.

Medusa (arXiv 2401.10774): place k is predicted from the state alone. Hydra (2402.05109): the state and the
embeddings of the k tokens between are read, so that a draft depends on the drafts before it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.heads.config import HeadConfig


class ResidualBlock(nn.Module):
    """x + SiLU(W x + b); W and b start at zero, so that an untrained block changes nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + F.silu(self.linear(x))
        return y


class MedusaHead(nn.Module):
    """`steps` heads of `layers` residual blocks; the output matrix is the target's, or one of each head's own."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.heads = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(size) for _ in range(config.layers))) for _ in range(config.steps)
        )

    def forward(self, state: Tensor, step: int) -> Tensor:
        """What the output matrix of head `step` reads, `[..., H]`, from the target's last state `[..., H]`."""
        y: Tensor = self.heads[step](state)
        return y


class HydraHead(nn.Module):
    """`steps` heads; head k reads the state and the embeddings of the k + 1 tokens behind it.

    y = R x + SiLU(W x + b) with a learned R, because x is wider than y; it starts as the state alone.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.joins = nn.ModuleList(nn.Linear((step + 2) * size, size) for step in range(config.steps))
        residuals = [nn.Linear((step + 2) * size, size) for step in range(config.steps)]
        self.residuals = nn.ModuleList(residuals)
        self.heads = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(size) for _ in range(config.layers))) for _ in range(config.steps)
        )
        for parameter in (*self.joins.parameters(), *self.residuals.parameters()):
            nn.init.zeros_(parameter)
        for residual in residuals:
            residual.weight.data.fill_diagonal_(1.0)

    def forward(self, state: Tensor, embedded: Tensor, step: int) -> Tensor:
        """`[..., H]` from the state `[..., H]` and the embeddings `[..., step + 1, H]` of the tokens behind it."""
        joined = torch.cat([state, embedded.flatten(-2)], dim=-1)
        y: Tensor = self.heads[step](self.residuals[step](joined) + F.silu(self.joins[step](joined)))
        return y
