"""CUDA graphs that are none: what a function launches is noted, and a replay runs it again on the same addresses.

A capture raises on what one on a card cannot hold: a read by the host, a number that the host makes, shapes that follow
the numbers, coins, a running collector, memory whose graphs are gone. A replay raises where a tensor is gone that the
capture has read, as its address may be another's by then. Before every replay all memory that the graphs of a pool
share is overwritten, for another graph may have used it.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from utils.device import graphed
from utils.numbers import argmax, largest

READS = {
    *("_local_scalar_dense", "equal", "nonzero", "masked_select", "is_nonzero", "_unique2", "unique_dim", "bincount"),
    *("item", "argwhere", "allclose", "repeat_interleave"),
}
HOST = {"lift_fresh", "pin_memory", "_pin_memory", "is_pinned"}
RANDOM = {"bernoulli", "multinomial", "rand", "rand_like", "randn", "randint", "exponential_", "uniform_", "normal_"}
MADE = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "detach", "alias"}


class NotCapturable(RuntimeError):
    """What a capture on a card cannot hold."""


@dataclass(slots=True)
class _Address:
    """Where a tensor lies; it is alive as long as somebody else has its memory."""

    memory: StorageWeakRef
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: Tensor) -> "_Address":
        memory = StorageWeakRef(tensor.untyped_storage())
        return cls(memory, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset())

    def tensor(self, operation: str) -> Tensor:
        memory = torch.UntypedStorage._new_with_weak_ptr(self.memory.cdata)
        if memory is None:
            raise NotCapturable(f"{operation}: a tensor is gone that the graph reads or writes")
        return torch.empty(0, dtype=self.dtype).set_(memory, self.offset, self.size, self.stride)


@dataclass(slots=True)
class _Launch:
    """One operation; of tensors from outside the capture only the addresses are kept."""

    function: Any
    arguments: Any
    named: Any
    outputs: list[Tensor]

    def again(self) -> None:
        def there(one: Any) -> Any:
            return one.tensor(str(self.function)) if isinstance(one, _Address) else one

        found = self.function(*tree_map(there, self.arguments), **tree_map(there, self.named))
        for kept, made in zip(self.outputs, tree_leaves(found), strict=False):
            kept.copy_(made)


pools: dict[int, "WeakSet[Graph]"] = {}


class Graph(TorchDispatchMode):
    """What `torch.cuda.CUDAGraph` is here. launches: of one replay, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[_Launch] = []
        self.between: list[Tensor] = []
        self._inside: set[int] = set()

    def __hash__(self) -> int:
        return id(self)

    def capture(self, pool: int) -> None:
        """Before a capture into memory."""
        if gc.isenabled():
            raise NotCapturable("the collector runs: it may destroy another graph")
        if pool in pools and not pools[pool]:
            raise NotCapturable("the memory went with its last graph")
        pools.setdefault(pool, WeakSet()).add(self)
        self._pool = pool

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name.split("::")[1])
        kwargs = kwargs or {}
        if name in READS or name in HOST or name in RANDOM:
            raise NotCapturable(f"{name} in a capture")
        if name in ("index", "index_put", "index_put_") and any(
            isinstance(one, Tensor) and one.dtype == torch.bool for one in tree_leaves(args[1])
        ):
            raise NotCapturable(f"{name} by a mask in a capture: its shape follows the numbers")
        out = func(*args, **kwargs)
        given = {_memory(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        made = [one for one in tree_leaves(out) if isinstance(one, Tensor) and _memory(one) not in given]
        self._inside |= {_memory(one) for one in made}
        self.between += made
        if name not in MADE and (made or func._schema.is_mutable):
            self.launches.append(_Launch(func, *tree_map(self._kept, (args, kwargs)), made))
        return out

    def _kept(self, one: Any) -> Any:
        outside = isinstance(one, Tensor) and not one.is_mkldnn and _memory(one) not in self._inside
        return _Address.of(one) if outside else one

    def replay(self) -> None:
        """Run the launches again."""
        for graph in pools[self._pool]:
            for tensor in graph.between:
                overwrite(tensor)
        for launch in self.launches:
            launch.again()


def overwrite(tensor: Tensor) -> None:
    """With what no computation survives unseen."""
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(torch.nan if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)


def _memory(tensor: Tensor) -> int:
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage()._cdata


@contextmanager
def _graph(graph: Graph, pool: int, stream: object, mode: str) -> Iterator[None]:
    graph.capture(pool)
    with graph:
        yield


class _Stream:
    def wait_stream(self, other: object) -> None:
        """Nothing runs beside."""


def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on functions are captured on a CPU as they are on CUDA."""
    handles = iter(range(1, 1_000_000))
    pools.clear()
    replaced: dict[str, Callable[..., Any]] = {
        "CUDAGraph": Graph,
        "graph": _graph,
        "graph_pool_handle": lambda: next(handles),
        "device": lambda device: nullcontext(),
        "stream": lambda stream: nullcontext(),
        "Stream": lambda device: _Stream(),
        "current_stream": lambda: _Stream(),
        "current_device": lambda: 0,
        "set_stream": lambda stream: None,
        "synchronize": lambda: None,
    }
    for name, function in replaced.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(graphed, "captures", lambda device: True)
    monkeypatch.setattr(graphed, "_broken", [])
    monkeypatch.setattr(largest, "_by_numpy", lambda numbers, count: False)  # a card's numbers are never numpy's
    monkeypatch.setattr(argmax, "_by_numpy", lambda numbers: False)
    graphed._streams.cache_clear()
