"""What every process but the first does: compute along, until it is told to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from sampling.forward.caches.cache import SequenceCache
from sampling.forward.causal_model import CausalModel
from sampling.forward.sharded.command import Command, ShardOperation, seen_again
from sampling.forward.sharded.group import ProcessGroup
from sampling.forward.sharded.model import new_part
from utils.errors import UserError

Load = Callable[[str], CausalModel]


class RankWorker:
    """The parts of models and caches that one process has, by the numbers that the first one gave them."""

    def __init__(self, group: ProcessGroup, load: Load) -> None:
        self._group, self._load = group, load
        self._models: dict[int, CausalModel] = {}
        self._caches: dict[int, SequenceCache] = {}
        self._does = {
            ShardOperation.LOAD: self._take,
            ShardOperation.FORWARD: self._forward,
            ShardOperation.MOVE: self._move,
            ShardOperation.ROWS: self._rows,
        }

    def follow(self) -> None:
        """Until the first process is through. Raises `SystemExit` with a line where it, or another one, is lost.

        Ctrl-C is the first one's affair, except while all load.
        """
        with _deaf(), self._group.in_step(), torch.inference_mode():
            while (command := Command.unpack(self._group.hear())).op is not ShardOperation.STOP:
                for number in command.gone:
                    self._caches.pop(number, None)
                with suppress(UserError):  # which the first process finds, too, and says
                    self._does[command.op](command)
        self._group.leave()

    def _take(self, command: Command) -> None:
        text = bytes(command.ids).decode()
        with _heard(), torch.inference_mode(False):
            self._models[command.model] = self._load(text)

    def _forward(self, command: Command) -> None:
        model, cache = self._models[command.model], self._cache(command)
        length, count = command.length, len(command.ids)
        ids = torch.tensor(command.ids, device=model.device)
        places = command.positions or range(length, length + count)
        seen = seen_again(command.sight, command.bits, length, count)
        mask = None if seen is None else cache.additive(seen.to(model.device))
        positions = torch.tensor(list(places), device=model.device)
        model.forward(ids, positions, mask, cache, command.hidden, command.number)

    def _move(self, command: Command) -> None:
        rows = torch.tensor(command.ids, device=self._models[command.model].device)
        self._cache(command).move(rows, command.number)

    def _rows(self, command: Command) -> None:
        model = self._models[command.model]
        model.output_rows(torch.tensor(command.ids, device=model.device))

    def _cache(self, command: Command) -> SequenceCache:
        """The cache that a command names, with as many rows as the first process's has."""
        if command.cache not in self._caches:
            self._caches[command.cache] = new_part(self._models[command.model])
        cache = self._caches[command.cache]
        cache.length = command.length
        return cache


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C changes nothing."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _heard() -> Iterator[None]:
    """Ctrl-C raises `KeyboardInterrupt`, as usual."""
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
