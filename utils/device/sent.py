"""Numbers between the host and a device: sent without waiting for what runs there, read only when looked at."""

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

T = TypeVar("T", int, float)


def sent(values: Sequence[int], device: torch.device) -> Tensor:
    """Whole numbers as a tensor `[n]` on a device.

    A copy from memory that may be paged out waits for all that was begun on a CUDA device before; one from pinned
    memory is queued behind it.
    """
    return moved(torch.tensor(values, dtype=torch.long), device)


@cache
def kept(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers that are sent to a device once, and stay there: a graph cannot send any, and holds their address."""
    return moved(torch.tensor(values, dtype=dtype), device)


def moved(made: Tensor, device: torch.device) -> Tensor:
    """A tensor that was made on the host, on a device: see `sent`. One that is there already is returned as it is."""
    there = made.device.type == device.type == "cuda"
    return _queued(made, device) if device.type == "cuda" and not there else made.to(device)


def written(buffer: Tensor, made: Tensor) -> None:
    """Copy numbers into a buffer of their shape, from its device or from the host: see `sent`."""
    pinned = made.device.type == "cpu" and buffer.device.type == "cuda"
    buffer.copy_(_pinned(made) if pinned else made, non_blocking=True)


def _queued(made: Tensor, device: torch.device) -> Tensor:
    return _pinned(made).to(device, non_blocking=True)


def _pinned(made: Tensor) -> Tensor:
    return made.pin_memory()


class OnDevice(Sequence[T]):
    """The numbers of a tensor `there` `[n]`, read all together when somebody looks; their count is known without.

    To read is to wait for the device.
    """

    def __init__(self, there: Tensor) -> None:
        self.there = there

    @cached_property
    def read(self) -> tuple[T, ...]:
        """All of them."""
        return tuple(self.there.tolist())

    def __len__(self) -> int:
        return self.there.shape[0]

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self.read[at]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Sequence) and self.read == tuple(other)

    def __hash__(self) -> int:
        return hash(self.read)
