"""Drafts that a recurrent head has fed in a round: their states, and which of them each new one sees."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


class FedDrafts:
    """Drafts are numbered in the order they are fed.

    As long as each follows the one before, their rows are a chain like those of a text; from the first tree on a table
    says which of them each draft sees. states: that of the text's last row `[1, H]`, where there is one.
    """

    def __init__(self, states: Sequence[Tensor]) -> None:
        self._states, self._held = list(states), False
        self._seen: Tensor | None = None
        self.count = 0

    @property
    def last(self) -> Tensor:
        """The states that were added last, `[k, H]`."""
        return self._states[-1]

    def hold(self) -> None:
        """Copy the state of the text, which the forward of a draft may overwrite."""
        if not self._held:
            self._states, self._held = [state.clone() for state in self._states], True

    def add(self, states: Tensor) -> None:
        """Those of k more drafts, `[k, H]`."""
        self._states.append(states)
        self.count += len(states)

    def below(self, parents: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What k new drafts continue, `[k, H]`, and which of the drafts each sees, `[k, fed + k]` bool.

        parents: `[k]`, -1 = the text. None: one draft, behind the last row. All are seen (None) where all are a chain.
        """
        if parents is not None:
            return torch.cat(self._states).index_select(0, parents + 1), self._table(parents)
        if self._seen is None:
            return self.last[-1:], None
        behind = torch.full((1,), self._seen.shape[0] - 2, device=self._seen.device)
        return self.last[-1:], self._table(behind)

    def _table(self, parents: Tensor) -> Tensor:
        """Which drafts k new ones see: what their parents see, and themselves."""
        count, device = len(parents), parents.device
        if self._seen is None:
            self._seen = torch.ones(self.count + 1, self.count, dtype=torch.bool, device=device).tril(-1)
        themselves = torch.eye(count, dtype=torch.bool, device=device)
        new = torch.cat([self._seen.index_select(0, parents + 1), themselves], dim=1)
        self._seen = torch.cat([F.pad(self._seen, (0, count)), new])
        return new
