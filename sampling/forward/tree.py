"""Trees of drafts as row numbers: who hangs below whom, how deep, and what each row sees."""

from collections.abc import Sequence

import torch
from torch import Tensor


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
