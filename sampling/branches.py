"""Texts that continue in parallel as branches of one sequence in a runner's cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.forward.runner import Runner


class Branches:
    """The cache rows of each text; all texts share the rows that exist when this object is made.

    Reordering texts or sharing a prefix copies row numbers only, never keys and values.
    """

    def __init__(self, target: Runner) -> None:
        self._target, self._base = target, target.length
        self._lines = torch.zeros(1, 0, dtype=torch.long)

    def grow(self, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Append token i to text `parents[i]` of the last call; logits `[n, V]`.

        A text that is no parent ends. The first call has one token and parent 0. Only the shared rows come before that
        token.
        """
        self._lines = self._lines[list(parents)]
        self._drop_dead_ends()
        rows = torch.arange(len(tokens)).unsqueeze(1) + self._target.length
        logits = self._target.fork(tokens, self._base, self._lines).logits
        self._lines = torch.cat([self._lines, rows], dim=1)
        return logits

    def _drop_dead_ends(self) -> None:
        """Compact the cache if more than half of the rows belong to no text. On average a row moves at most once."""
        alive = self._lines.unique()
        if self._target.length - self._base <= 2 * len(alive):
            return
        # The row of the first token follows the shared rows, and every text contains it.
        self._target.keep(self._base, (alive[1:] - self._base - 1).tolist())
        self._lines = torch.searchsorted(alive, self._lines) + self._base
