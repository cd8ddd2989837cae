"""The processes that compute together: what goes between them, counted, and what ends them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from sampling.forward.sharded.command import WORDS
from utils.device.torchrun import ProcessRank
from utils.errors import UserError
from utils.text import first_line

_FORWARD, _COMMAND = timedelta(minutes=10), timedelta(days=365)
_LOST = re.compile(r"Connection \w+ by peer|[Tt]imed out[^.]*")
T = TypeVar("T")


@dataclass(slots=True)
class WireCounters:
    """What this process gave to others: how often, and the bytes of the tensors that it gave or was given to add."""

    collectives: int = 0
    bytes: int = 0

    def count(self, tensor: Tensor) -> None:
        self.collectives += 1
        self.bytes += tensor.nbytes


class ProcessGroup:
    """All processes of a run; `tell` and `hear` commands go over the CPU, sums and parts where the tensors are.

    Whoever waits for a command waits as long as it takes; inside a forward ten minutes without the others are an error.
    over: something went wrong between a command and its end, so that no other can follow.
    """

    def __init__(self, seat: ProcessRank) -> None:
        self.seat, self.wire, self.over = seat, WireCounters(), False
        both = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if both else "gloo", timeout=_FORWARD)
        self._commands: Any = dist.new_group(backend="gloo", timeout=_COMMAND)

    def tell(self, words: Sequence[int]) -> None:
        """Send a command from the first process."""
        first = torch.zeros(WORDS, dtype=torch.int64)
        first[: len(words)] = torch.tensor(words[:WORDS])
        self._broadcast(first)
        if len(words) > WORDS:
            self._broadcast(torch.tensor(words[WORDS:]))

    def hear(self) -> list[int]:
        """The words of the next command, in any other process."""
        first = torch.empty(WORDS, dtype=torch.int64)
        self._broadcast(first)
        count = int(first[0])
        if count <= WORDS:
            return [int(word) for word in first.tolist()]
        rest = torch.empty(count - WORDS, dtype=torch.int64)
        self._broadcast(rest)
        return [*first.tolist(), *rest.tolist()]

    def _broadcast(self, words: Tensor) -> None:
        dist.broadcast(words, 0, group=self._commands)
        self.wire.count(words)

    def summed(self, x: Tensor) -> Tensor:
        """The sum of all processes' tensors of this shape, which takes the place of this one's."""
        dist.all_reduce(x)
        self.wire.count(x)
        return x

    def side_by_side(self, x: Tensor) -> Tensor:
        """`[n, m]` of each process -> `[n, size * m]` in all of them."""
        rows, width = x.shape
        parts = x.new_empty(self.seat.size * rows, width)
        dist.all_gather_into_tensor(parts, x.contiguous())
        self.wire.count(x)
        return parts.view(self.seat.size, rows, width).transpose(0, 1).reshape(rows, self.seat.size * width)

    def agreed(self, make: Callable[[], T]) -> T:
        """What this process makes, once every one has made its own.

        Raises `UserError` in all of them where one does: the first one's, or the next one's with its number.
        """
        error, made = None, list[T]()
        try:
            made.append(make())
        except UserError as found:
            error = str(found)
        errors: list[str | None] = [None] * self.seat.size
        dist.all_gather_object(errors, error, group=self._commands)
        for rank, said in enumerate(errors):
            if said is not None:
                raise UserError(said if rank == 0 else f"process {rank}: {said}")
        return made[0]

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """Around what all do together. A `UserError` all find alike, before they compute; any other ends the process.

        The others wait in the middle of it then, and nothing brings them back: they end when this one has.
        """
        try:
            yield
        except UserError:
            raise
        except (RuntimeError, MemoryError) as error:
            self.over = True
            raise SystemExit(f"error: {self._said(error)}") from error
        except BaseException:
            self.over = True
            raise

    def _said(self, error: Exception) -> str:
        here = f"process {self.seat.rank} of {self.seat.size}"
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return f"{here} is out of memory ({first_line(error)}); expected more processes, or a shorter text"
        lost = _LOST.search(str(error))
        return f"{here} cannot go on without the others: {lost[0] if lost else first_line(error)}"

    def leave(self) -> None:
        """End what connects the processes."""
        if not self.over and dist.is_initialized():
            dist.destroy_process_group()
