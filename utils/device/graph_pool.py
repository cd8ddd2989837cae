"""The graphs of one place: memory that they share, and how many there are."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Protocol

import torch
from torch import Tensor

from utils.device.spare import GRAPHS

Tensors = tuple[Tensor, ...]

MOST = 64
"""Graphs of a place: every width up to 17, with and without logits, each with its verification, leaves some over."""


class Replayable(Protocol):
    """A function of fixed shapes that can be run again."""

    def replay(self, inputs: Tensors) -> Tensors:
        """Its outputs for these inputs."""
        ...

    @property
    def held(self) -> Tensors:
        """The tensors that it keeps: those that it reads and those that it writes."""
        ...


class GraphPool:
    """Graphs that are replayed one after the other, on one stream, so that they can share the memory between.

    What a graph reads and writes lies outside that memory: another graph's replay does not touch it. most: how many
    graphs there are at most; the one that was used least recently goes first.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._handle: Any = None
        self._graphs: OrderedDict[Hashable, Replayable] = OrderedDict()
        GRAPHS.add(self)

    def __len__(self) -> int:
        return len(self._graphs)

    def __iter__(self) -> Any:
        return iter(self._graphs)

    @property
    def held_bytes(self) -> int:
        """Bytes of all that its graphs read and write; what lies between is not counted."""
        return sum(tensor.nbytes for graph in self._graphs.values() for tensor in graph.held)

    def get(self, key: Hashable) -> Replayable | None:
        """The graph of this key, which is the last used one from now on."""
        if key in self._graphs:
            self._graphs.move_to_end(key)
        return self._graphs.get(key)

    def make_room(self) -> None:
        """Drop graphs until there is a place for one more."""
        while len(self._graphs) >= self._most:
            self._graphs.popitem(last=False)

    def add(self, key: Hashable, graph: Replayable) -> None:
        """Hold one more."""
        self.make_room()
        self._graphs[key] = graph

    def handle(self) -> Any:
        """Torch's name of the memory. It ends with the last graph that was captured in it; the next one needs a new."""
        if self._handle is None or not self._graphs:
            self._handle = torch.cuda.graph_pool_handle()
        return self._handle

    def drop(self) -> None:
        """See `Spare.drop`: no graph is left."""
        self._graphs.clear()
        self._handle = None
