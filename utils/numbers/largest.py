"""The largest numbers of each row, by the fastest selection that a device has."""

import numpy as np
import torch
from torch import Tensor

_SELECTED = 3
"""torch's selection over numpy's, in time, with one thread each: numpy's uses vector instructions, and one thread."""


def largest(numbers: Tensor, count: int) -> Tensor:
    """The `count` largest numbers of each row `[..., V]` -> `[..., count]`, descending. No gradient passes.

    On a CPU numpy selects in a third of torch's time and sorts a row of 50,000 in a thirtieth. It selects the least of
    the negatives: behind many zeros, which a cut leaves, it takes ten times as long for the largest. torch shares rows
    among threads, so many rows are selected by torch.
    """
    size = numbers.shape[-1]
    if not _by_numpy(numbers, count):
        whole = count == size
        return (numbers.sort(dim=-1, descending=True) if whole else numbers.topk(count, dim=-1)).values
    rows = np.negative(numbers.detach().numpy())
    if count < size:
        rows = np.partition(rows, count - 1, axis=-1)[..., :count]
    return torch.from_numpy(np.negative(np.sort(rows, axis=-1)))


def _by_numpy(numbers: Tensor, count: int) -> bool:
    """Whether numpy's one thread is done before torch's threads together."""
    if numbers.device.type != "cpu":
        return False
    size = numbers.shape[-1]
    rows = numbers.numel() // size
    return count == size or rows <= _SELECTED * -(-rows // torch.get_num_threads())
