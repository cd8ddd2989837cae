"""From the host to a device without waiting for what runs there."""

from collections.abc import Sequence

import torch
from torch import Tensor


def sent(values: Sequence[int], device: torch.device) -> Tensor:
    """Whole numbers as a tensor `[n]` on a device.

    A copy from memory that may be paged out waits for all that was begun on a CUDA device before; one from pinned
    memory is queued behind it.
    """
    return moved(torch.tensor(values, dtype=torch.long), device)


def moved(made: Tensor, device: torch.device) -> Tensor:
    """A tensor that was made on the host, on a device: see `sent`."""
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)
