"""Memory that can be let go of where it runs out: captured graphs first, then caches that no text uses."""

from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakSet

import torch

T = TypeVar("T")

OUT_OF_MEMORY = MemoryError, torch.OutOfMemoryError


class Spare(Protocol):
    """What holds memory that it can do without."""

    def drop(self) -> None:
        """Let go of it. What was dropped is made anew when it is needed."""
        ...


GRAPHS: "WeakSet[Spare]" = WeakSet()
CACHES: "WeakSet[Spare]" = WeakSet()


def with_room(call: Callable[[], T]) -> T:
    """What a call gives that may be made again after it failed.

    Where memory runs out, graphs are dropped and it is made again, then unused caches. Raises the last error.
    """
    for spare in (GRAPHS, CACHES):
        try:
            return call()
        except OUT_OF_MEMORY:
            pass  # what the failed call holds is gone behind this block
        _drop(spare)
    return call()


def drop_all() -> None:
    """Let go of all that can be made anew, and give it back to the device."""
    for spare in (GRAPHS, CACHES):
        _drop(spare)


def _drop(spare: "WeakSet[Spare]") -> None:
    for holder in list(spare):
        holder.drop()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
