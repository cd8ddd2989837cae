"""Trees of drafts as row numbers: who hangs below whom, how deep, and what each row sees."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from utils.device.sent import OnDevice, sent


class Parents(OnDevice[int]):
    """The parent of each draft of a tree (-1 = the last committed token), computed on a device.

    laid_out: see the function of this name, where that is known for a width.
    """

    def __init__(self, there: Tensor, laid_out: tuple[Tensor, Tensor] | None = None) -> None:
        super().__init__(there)
        self.laid_out = laid_out

    @cached_property
    def seen(self) -> Tensor:
        """See `ancestors`."""
        if self.laid_out is None:
            return ancestors(self.there)
        size = len(self) + 1
        return self.laid_out[1][:size, :size]


def ancestors(parents: Tensor) -> Tensor:
    """Which of the n + 1 fed rows each row sees, `[n + 1, n + 1]` bool, where the parents `[n]` are; nothing is read.

    Rows see what their parents see: each step of the loop doubles how far up that reaches.
    """
    size = parents.shape[0] + 1
    rows = torch.arange(size, device=parents.device)
    seen = rows.unsqueeze(1) == rows
    seen = seen | torch.cat([seen[:1] & False, (parents + 1).unsqueeze(1) == rows])
    for _ in range((size - 1).bit_length()):
        seen = seen.float() @ seen.float() > 0.0
    return seen


def seen_in_tree(parents: Sequence[int], device: torch.device) -> Tensor:
    """`ancestors` of parents that are on the host or on a device, there."""
    return parents.seen.to(device) if isinstance(parents, Parents) else ancestors(sent(parents, device))


def laid_out(parents: Sequence[int], width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(depth `[width]`, seen `[width, width]`) of the root and the drafts that hang off it, on a device.

    Rows that fill up see themselves alone.
    """
    known = parents.laid_out if isinstance(parents, Parents) else None
    if known is not None and len(known[0]) == width:
        return known[0].to(device), known[1].to(device)
    filling = width - len(parents) - 1
    seen = F.pad(seen_in_tree(parents, device), (0, filling, 0, filling))
    depth = (seen.sum(1) - 1).clamp(min=0)
    return depth, seen | torch.eye(width, dtype=torch.bool, device=device)


def rows_of(parents: Sequence[int], device: torch.device) -> Tensor:
    """Parents `[n]` on a device."""
    return parents.there.to(device) if isinstance(parents, Parents) else sent(parents, device)


def depths(parents: Sequence[int]) -> list[int]:
    """Distance of each row from the last committed token: `(-1, -1, 0)` -> `[1, 1, 2]`."""
    depth: list[int] = []
    for parent in parents:
        depth.append(1 if parent < 0 else depth[parent] + 1)
    return depth


def children(parents: Sequence[int]) -> dict[int, list[int]]:
    """The rows that hang off each row, in order: `(-1, -1, 0)` -> `{-1: [0, 1], 0: [2]}`; none for any other."""
    below: dict[int, list[int]] = defaultdict(list)
    for row, parent in enumerate(parents):
        below[parent].append(row)
    return below


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """Which of the n + 1 fed rows each row sees, `[n + 1, n + 1]` bool; row 0 is the last committed token.

    Example for parents `(-1, -1, 0)`:
    row 0 sees 0; row 1 sees 0, 1; row 2 sees 0, 2; row 3 (child of draft 0, fed row 1) sees 0, 1, 3.
    """
    return seen_in_tree(parents, torch.device("cpu"))


def is_chain(path: Sequence[int]) -> bool:
    """Whether the accepted rows are the first ones in order, which is all that a chain can have."""
    return all(row == place for place, row in enumerate(path))
