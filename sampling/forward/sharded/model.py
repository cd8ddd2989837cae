"""A model over several processes as the first one sees it: a `CausalModel` whose forwards the others compute along."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from sampling.forward.caches.cache import RollbackCache, SequenceCache
from sampling.forward.causal_model import CausalModel, PromptReading
from sampling.forward.sharded.command import Command, ShardOperation, sight_of
from sampling.forward.sharded.group import ProcessGroup
from utils.interrupt import HeldInterrupt

T = TypeVar("T")


class Leader:
    """What the first process knows of the others: the numbers of models and caches, and which caches are gone."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self._caches, self._models = 0, 0
        self._gone: list[int] = []

    def ask(self, command: Command, do: Callable[[], T]) -> T:
        """Have all do the same, this process by `do`; Ctrl-C waits until they have."""
        gone, self._gone = self._gone, []
        with HeldInterrupt(), self.group.in_step():
            self.group.tell(replace(command, gone=gone).pack())
            return do()

    def load(self, text: str, make: Callable[[], T]) -> tuple[int, T]:
        """Have all load what a text says, this process by `make`; the number of the model. Ctrl-C reaches all.

        Raises `UserError` where `make` does, as it then does everywhere.
        """
        number, self._models = self._models, self._models + 1
        with self.group.in_step():
            self.group.tell(Command(ShardOperation.LOAD, model=number, ids=list(text.encode())).pack())
            return number, make()

    def new_cache(self) -> int:
        """A number that no cache has."""
        self._caches += 1
        return self._caches

    def forget(self, cache: int) -> None:
        """The next command says that this one is no more."""
        self._gone.append(cache)

    def stop(self) -> None:
        """Tell the others that this process is through, unless they cannot hear it any more."""
        if not self.group.over:
            with HeldInterrupt(), self.group.in_step():
                self.group.tell(Command(ShardOperation.STOP).pack())
        self.group.leave()


class ShardedCache(SequenceCache):
    """The rows of one sequence in all processes: this one's part, and a number by which the others know theirs.

    Only rows that move are told at once; how many count, every forward says.
    """

    def __init__(self, part: SequenceCache, model: int, leader: Leader) -> None:
        self.part, self.model, self.number = part, model, leader.new_cache()
        self.device, self.dtype, self._leader = part.device, part.dtype, leader
        weakref.finalize(self, leader.forget, self.number).atexit = False

    @property
    def length(self) -> int:
        """Rows that count."""
        return self.part.length

    @length.setter
    def length(self, rows: int) -> None:
        self.part.length = rows

    def move(self, rows: Tensor, to: int) -> None:
        """See `SequenceCache.move`."""
        command = Command(ShardOperation.MOVE, self.model, self.number, self.length, to, ids=rows.tolist())
        self._leader.ask(command, lambda: self.part.move(rows, to))

    def additive(self, seen: Tensor) -> Tensor:
        """See `SequenceCache.additive`."""
        return self.part.additive(seen)


def new_part(model: CausalModel) -> RollbackCache:
    """A process's part of a cache, whose masks can be told to others: the model's own, or one that lean models take."""
    cache = model.new_cache()
    return cache if isinstance(cache, RollbackCache) else RollbackCache(model.num_layers, model.device, model.dtype)


class ShardedModel:
    """The first process's part of a model, and the others' with it.

    landmarks: those of the whole model, with its embedding, which every process has or had in full.
    """

    def __init__(self, part: CausalModel, number: int, leader: Leader, landmarks: Mapping[str, Tensor]) -> None:
        self.part, self._number, self._leader, self._landmarks = part, number, leader, landmarks
        self.num_layers, self.window, self.vocab_size = part.num_layers, part.window, part.vocab_size
        self.trees, self.device, self.dtype = part.trees, part.device, part.dtype

    @property
    def processes(self) -> int:
        """Over how many it is."""
        return self._leader.group.seat.size

    @property
    def embedding(self) -> Tensor:
        """`[V, H]`."""
        return self._landmarks["embedding"]

    def output_rows(self, ids: Tensor) -> Tensor:
        """See `CausalModel.output_rows`; all processes have a part of them."""
        command = Command(ShardOperation.ROWS, self._number, ids=ids.tolist())
        with torch.inference_mode():
            rows = self._leader.ask(command, lambda: self.part.output_rows(ids))
        return rows.clone()  # outside inference mode, where heads may be trained on them

    def landmarks(self) -> dict[str, Tensor]:
        """See `CausalModel.landmarks`."""
        return dict(self._landmarks)

    def new_cache(self) -> ShardedCache:
        """See `CausalModel.new_cache`; the others make theirs when a forward first names it."""
        return ShardedCache(new_part(self.part), self._number, self._leader)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `CausalModel.read`."""
        return self.part.read(prompt)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: ShardedCache,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See `CausalModel.forward`."""
        sight, bits = sight_of(mask, cache.length)
        places, following = positions.tolist(), list(range(cache.length, cache.length + len(tokens)))
        command = Command(
            *(ShardOperation.FORWARD, self._number, cache.number, cache.length, rows, sight),
            ids=tokens.tolist(),
            positions=[] if places == following else places,
            hidden=list(hidden),
            bits=bits,
        )
        return self._leader.ask(command, lambda: self.part.forward(tokens, positions, mask, cache.part, hidden, rows))
