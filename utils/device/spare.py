"""Memory that can be let go of where it runs out, captured graphs first; and what else fails for one of many alone."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import torch

T = TypeVar("T")

_log = logging.getLogger(__name__)
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


def attempt(function: Callable[..., T], *arguments: Any) -> T | Exception:
    """What the function returns, or the error that it raises; an error among its arguments is passed on."""
    for argument in arguments:
        if isinstance(argument, Exception):
            return argument
    try:
        return function(*arguments)
    except OUT_OF_MEMORY:
        raise
    except Exception as error:
        return error


def each_of(
    run: Callable[[Sequence[Any]], Sequence[Any]], feeds: Sequence[Any], outputs: Sequence[Any] | Exception
) -> Iterator[Any]:
    """The output of each feed, or its error. Where all of them together failed, each is run when it is asked for."""
    if not isinstance(outputs, Exception):
        yield from outputs
    elif len(feeds) == 1:
        yield outputs
    else:
        note_shared_failure("forward", outputs)
        for feed in feeds:
            output = attempt(run, [feed])
            yield output if isinstance(output, Exception) else output[0]


def note_shared_failure(what: str, error: Exception) -> None:
    """Keep the traceback of what failed for many sequences at once, before each is tried by itself."""
    _log.warning("a shared %s failed; each text has its own", what, exc_info=error)
