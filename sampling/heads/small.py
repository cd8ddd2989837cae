"""A small causal model that shares the target's embedding: the distilled drafter."""

import torch
from torch import Tensor, nn

from sampling.heads.block import Block, rotations
from sampling.heads.config import HeadConfig


class SmallModel(nn.Module):
    """`layers` blocks and a norm; embedding and output matrix are the target's."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, embedded: Tensor) -> Tensor:
        """`[B, T, H]` embeddings -> what the output matrix reads, `[B, T, H]`."""
        rotation = rotations(self.config, torch.arange(embedded.shape[1], device=embedded.device))
        for block in self.blocks:
            embedded, _ = block(embedded, rotation)
        y: Tensor = self.norm(embedded)
        return y
