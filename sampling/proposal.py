"""A proposal: drafts that hang off the last committed token, as a chain or a tree."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.tree import rows_of, seen_in_tree
from utils.events import Round


@dataclass(frozen=True, slots=True)
class Proposal:
    """n drafts, parents before children.

    tokens: `[n]` int64. parents: n row numbers, -1 = the last committed token, on the host or as `Parents` of a device;
    None = a chain (row i hangs off row i - 1). draft_probs: `[n, V]` float32, the q each token was drawn from, given
    its earlier siblings (drawn without replacement: they are 0 in it); None = a point mass (the drafter was certain, as
    an n-gram match is). first_logits: `[V]`, the raw logits behind the first draft, whose entropy is recorded; None
    where there are none. point_mass_check: `[n]`, the probability of each point mass that comes from logits: 1, NaN
    where they are no distribution. inner: the rounds of a drafter model that is drafted for itself, none of any other.
    source: see `Round`.

    Example: the tree  root -> a, root -> b, a -> c  is tokens [a, b, c], parents (-1, -1, 0).
    """

    tokens: Tensor
    parents: Sequence[int] | None = None
    draft_probs: Tensor | None = None
    first_logits: Tensor | None = None
    point_mass_check: Tensor | None = None
    inner: tuple[Round, ...] = ()
    source: str = ""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @classmethod
    def empty(cls, device: torch.device) -> "Proposal":
        """No draft: the round is plain autoregression."""
        return cls(torch.empty(0, dtype=torch.long, device=device))

    @property
    def parent_rows(self) -> tuple[int, ...]:
        """The parent of every row, also for a chain."""
        return tuple(range(-1, len(self) - 1)) if self.parents is None else tuple(self.parents)

    def parents_on(self, device: torch.device) -> Tensor:
        """The same `[n]`, where the drafts are judged; nothing is read."""
        if self.parents is None:
            return torch.arange(-1, len(self) - 1, device=device)
        return rows_of(self.parents, device)

    def seen_on(self, device: torch.device) -> Tensor:
        """Which drafts each draft of a tree sees, `[n, n]` bool: itself and those that lead to it."""
        assert self.parents is not None
        return seen_in_tree(self.parents, device)[1:, 1:]
