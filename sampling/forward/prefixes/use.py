"""One text beside the trees of prefixes: what it takes over, and what it leaves for others."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from sampling.forward.caches.blocks import BlockRows
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.prefixes.stores import RowsStore, SharedBlocks, store_of
from sampling.forward.prefixes.tree import Node, PrefixMemory, PrefixTree, States
from sampling.forward.runner import Runner


@dataclass(slots=True, eq=False)
class PrefixUse:
    """A text on a runner whose model has a tree. layers: of which its drafter wants the states of all rows.

    start: rows of the prompt that it did not read. hits: those of them that the tree had.
    """

    tree: PrefixTree
    store: RowsStore
    runner: Any
    layers: Sequence[int] = ()
    start: int = 0
    hits: int = 0
    _states: list[States] = field(default_factory=list)
    _made: list[Node] = field(default_factory=list)

    def resume(self, tokens: Sequence[int], there: int = 0) -> int:
        """Take over the rows of a prompt's beginning where more of them are kept than are `there`; how many it has."""
        found = self.tree.match(tokens, self.layers)
        self.start = there
        if found.rows > there:
            self.store.lend(self.runner.cache, [node.handle for node in found.path], found.rows)
            self.start = self.hits = found.rows
            parts = [node.states for node in found.path]
            self._states = [_joined(parts, self.layers, found.rows)] if self.layers else []
        return self.start

    def whole(self, read: States) -> dict[int, Tensor]:
        """The states of all rows of the prompt that are known: those of the tree, then those that were read."""
        return _joined([*self._states, read], self.layers)

    def read(self, tokens: Sequence[int], states: States) -> None:
        """All of a prompt was read: keep it. states: what `whole` gave."""
        self._states = [states]
        self._insert(tokens)

    def note(self, states: States) -> None:
        """The states of the rows that a round has committed."""
        if self.layers:
            self._states.append(states)

    def leave(self, tokens: Sequence[int]) -> None:
        """The text is over: keep the rows that count."""
        self._insert(tokens[: self.runner.length])

    def fail(self) -> None:
        """The text has failed: nothing that it brought stays, nor what others put behind that."""
        for node in self._made:
            self.tree.remove(node)

    def saved_s(self, tokens: int, seconds: float) -> float:
        """What its hits saved, by the fastest reading of a prompt so far a row.

        tokens: of which rows there are. seconds: that reading its own took.
        """
        self.tree.timed(tokens - self.start, seconds)
        return self.hits * (self.tree.row_s or 0.0)

    @torch.inference_mode()
    def _insert(self, tokens: Sequence[int]) -> None:
        states = _joined(self._states, self.layers)
        whole = all(len(rows) >= len(tokens) for rows in states.values())
        keep = self.store.keeping(self.runner.cache, self.runner.length)
        self._made += self.tree.insert(tokens, keep, states if whole else {})


def _joined(parts: Sequence[States], layers: Sequence[int], rows: int | None = None) -> dict[int, Tensor]:
    """Rows of states one behind the other; empty where there are none."""
    filled = [part for part in parts if part]
    return {layer: torch.cat([part[layer] for part in filled])[:rows] for layer in layers} if filled else {}


class PrefixCache:
    """The trees of all models, and of runs that must not depend on each other. most: bytes of all together."""

    def __init__(self, most: int) -> None:
        self.memory = PrefixMemory(most)
        self._trees: dict[tuple[str, int], tuple[ref[Any], PrefixTree]] = {}

    def of(self, run: str = "") -> "Prefixes":
        """The trees of a run."""
        return Prefixes(self, run)

    def forget(self, run: str) -> None:
        """Take out what a run has kept."""
        for key in [key for key in self._trees if key[0] == run]:
            self._trees.pop(key)[1].clear()

    def tree(self, run: str, store: RowsStore, about: object) -> PrefixTree:
        """The tree of a run for what its rows belong to; trees of what is gone are taken out."""
        for key, (owner, tree) in [*self._trees.items()]:
            if owner() is None:
                tree.clear()
                del self._trees[key]
        key = run, id(about)
        if key not in self._trees:
            self._trees[key] = ref(about), PrefixTree(store, self.memory)
        return self._trees[key][1]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The trees that the texts of a run use."""

    cache: PrefixCache
    run: str = ""

    def use(self, runner: Runner, layers: Sequence[int] = ()) -> PrefixUse | None:
        """For a text that begins on a runner; None where its model's rows cannot be kept."""
        store = store_of(runner)
        if store is None:
            return None
        cache: Any = getattr(runner, "cache", None)
        about: Any = runner.model
        if isinstance(store, SharedBlocks) and isinstance(cache, RowsSlot):
            about = cache.owner
            about.reclaim = partial(_reclaim, self.cache.memory)
        return PrefixUse(self.cache.tree(self.run, store, about), store, runner, layers)


def _reclaim(memory: PrefixMemory, owner: BlockRows, count: int) -> None:
    """See `BlockRows.reclaim`: prefixes that no text goes on from."""
    memory.reclaim(
        lambda store: isinstance(store, SharedBlocks) and store.of(owner), lambda: owner.free_blocks >= count
    )
