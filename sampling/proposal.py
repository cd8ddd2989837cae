"""A proposal: drafts that hang off the last committed token, as a chain or a tree."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Proposal:
    """n drafts, parents before children.

    tokens: `[n]` int64. parents: n row numbers, -1 = the last committed token; None = a chain (row i
    hangs off row i - 1). probs: `[n, V]` float32, the q each token was drawn from, given its earlier
    siblings (drawn without replacement: they are 0 in it); None = a point mass (the drafter was certain, as
    an n-gram match is). entropy: 0-d, nats, of the raw distribution of the first draft; None where there
    is none.

    Example: the tree  root -> a, root -> b, a -> c  is tokens [a, b, c], parents (-1, -1, 0).
    """

    tokens: Tensor
    parents: tuple[int, ...] | None = None
    probs: Tensor | None = None
    entropy: Tensor | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @classmethod
    def empty(cls, device: torch.device) -> "Proposal":
        """No draft: the round is plain autoregression."""
        return cls(torch.empty(0, dtype=torch.long, device=device))

    @property
    def parent_rows(self) -> tuple[int, ...]:
        """The parent of every row, also for a chain."""
        return tuple(range(-1, len(self) - 1)) if self.parents is None else self.parents


def children(parents: Sequence[int]) -> dict[int, list[int]]:
    """Rows below each row, in order; key -1 holds the root's. `(-1, -1, 0)` -> `{-1: [0, 1], 0: [2]}`."""
    below: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        below.setdefault(parent, []).append(row)
    return below


def depths(parents: Sequence[int]) -> list[int]:
    """Distance of each row from the last committed token: `(-1, -1, 0)` -> `[1, 1, 2]`."""
    depth: list[int] = []
    for parent in parents:
        depth.append(1 if parent < 0 else depth[parent] + 1)
    return depth


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """Which of the n + 1 fed rows each row sees, `[n + 1, n + 1]` bool; row 0 is the last committed token.

    Example for parents `(-1, -1, 0)`:
    row 0 sees 0; row 1 sees 0, 1; row 2 sees 0, 2; row 3 (child of draft 0, fed row 1) sees 0, 1, 3.
    """
    size = len(parents) + 1
    mask = torch.eye(size, dtype=torch.bool)
    mask[:, 0] = True
    for row, parent in enumerate(parents, start=1):
        mask[row] |= mask[parent + 1]
    return mask
