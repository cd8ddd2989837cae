"""Texts that go on side by side as branches of one sequence in a runner's cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.forward.runner import Runner


class Branches:
    """Which rows of the cache lead to each text; all share those that are there now.

    When texts change places or share a beginning only row numbers are copied, never keys and values.
    """

    def __init__(self, target: Runner) -> None:
        self._target, self._base = target, target.length
        self._lines = torch.zeros(1, 0, dtype=torch.long)

    def grow(self, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Token i continues text `parents[i]` of the last call; texts without one end. Logits `[n, V]`.

        The first call has one token and parent 0: nothing but the shared rows is before it.
        """
        self._lines = self._lines[list(parents)]
        self._drop_dead_ends()
        rows = torch.arange(len(tokens)).unsqueeze(1) + self._target.length
        logits = self._target.fork(tokens, self._base, self._lines).logits
        self._lines = torch.cat([self._lines, rows], dim=1)
        return logits

    def _drop_dead_ends(self) -> None:
        """Close the gaps once more than half of the rows lead to no text: a row moves at most once on average."""
        alive = self._lines.unique()
        if self._target.length - self._base <= 2 * len(alive):
            return
        # The first token's row comes first behind the shared ones and leads to every text.
        self._target.keep(self._base, (alive[1:] - self._base - 1).tolist())
        self._lines = torch.searchsorted(alive, self._lines) + self._base
