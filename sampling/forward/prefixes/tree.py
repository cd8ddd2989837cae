"""A radix tree over blocks of tokens whose rows are kept; the least recently used leaves go first.

A node is a block of at most `grain` tokens behind the tokens of the nodes above it. Keys and values of a row never
change once they are written, and follow from the tokens up to the row. So they serve every text that begins so.
A tree of prefixes: RadixAttention, arXiv 2312.07104. Blocks of rows: arXiv 2309.06180.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from utils.token_ids import alike

Tokens = tuple[int, ...]
States = Mapping[int, Tensor]
"""Hidden states `[n, H]` of n rows, by layer."""


class BlockStore(Protocol):
    """What keeps the rows behind the handles of a tree. grain: rows of a block."""

    @property
    def grain(self) -> int: ...

    def size(self, handle: Any) -> int:
        """Bytes of a block."""
        ...

    def in_use(self, handle: Any) -> bool:
        """Whether a text goes on from these very rows."""
        ...

    def drop(self, handle: Any) -> None:
        """The tree no longer has the block."""
        ...


@dataclass(slots=True, eq=False)
class Node:
    """A block. handle: of its rows, which take `rows_size` bytes. states: of layers that drafters asked for.

    above: None at the root, and of a node that was taken out.
    """

    tree: "PrefixTree"
    tokens: Tokens = ()
    handle: Any = None
    rows_size: int = 0
    above: "Node | None" = None
    states: dict[int, Tensor] = field(default_factory=dict)
    below: dict[Tokens, "Node"] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of rows and states."""
        return self.rows_size + sum(states.numel() * states.element_size() for states in self.states.values())

    def has(self, layers: Sequence[int]) -> bool:
        """Whether the states of these layers are there."""
        return all(layer in self.states for layer in layers)


class PrefixMemory:
    """The nodes of all trees that share a budget, the least recently used first. most, used: bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0
        self._nodes: OrderedDict[Node, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def touch(self, path: Sequence[Node]) -> None:
        """The nodes of a path, from the root on, were used now. No node is older than one below it."""
        for node in reversed(path):
            self.used += node.size - self._nodes.pop(node, 0)
            self._nodes[node] = node.size

    def forget(self, node: Node) -> None:
        """A node is gone."""
        self.used -= self._nodes.pop(node, 0)

    def shrink(self) -> None:
        """Remove leaves that no text goes on from until the budget holds; what is in use stays."""
        if self.used <= self.most:
            return
        for node in [*self._nodes]:
            if self.used <= self.most:
                return
            if not node.below and not node.tree.store.in_use(node.handle):
                node.tree.remove(node)

    def reclaim(self, needed: Callable[[BlockStore], bool], enough: Callable[[], bool]) -> None:
        """Remove leaves of trees whose store is needed, and that no text goes on from, until there is enough."""
        for node in [*self._nodes]:
            if enough():
                return
            if needed(node.tree.store) and not node.below and not node.tree.store.in_use(node.handle):
                node.tree.remove(node)


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The longest beginning of a text that is kept: `rows` rows. Of the last node of the path they may be a part."""

    path: tuple[Node, ...] = ()
    rows: int = 0


class PrefixTree:
    """The kept prefixes of one model. row_s: the least seconds a row that reading a prompt took; None: unknown yet."""

    def __init__(self, store: BlockStore, memory: PrefixMemory) -> None:
        self.store, self.memory = store, memory
        self.row_s: float | None = None
        self._root = Node(self)

    def match(self, tokens: Sequence[int], layers: Sequence[int] = ()) -> PrefixMatch:
        """The longest kept beginning of a text, with the states of these layers."""
        path, rows, node, grain = list[Node](), 0, self._root, self.store.grain
        while rows < len(tokens):
            block = tuple(tokens[rows : rows + grain])
            child, same = self._closest(node, block, layers)
            if child is None or not same:
                break
            path.append(child)
            rows += same
            if same < grain:
                break
            node = child
        self.memory.touch(path)
        return PrefixMatch(tuple(path), rows)

    @staticmethod
    def _closest(node: Node, block: Tokens, layers: Sequence[int]) -> tuple[Node | None, int]:
        """The node below that has most of the block, and how many of its tokens."""
        exact = node.below.get(block)
        if exact is not None and exact.has(layers):
            return exact, len(block)
        fitting = ((alike(child.tokens, block), child) for child in node.below.values() if child.has(layers))
        same, child = max(fitting, key=lambda each: each[0], default=(0, None))
        return child, same

    def insert(self, tokens: Sequence[int], keep: Callable[[int, int], Any], states: States) -> list[Node]:
        """Keep what is not there yet of the rows of these tokens; the nodes that are new, from the root on.

        keep: the handle of rows `[start, stop)`; None where they cannot be kept, which ends it. states: of all tokens.
        """
        path, made, node, grain = list[Node](), list[Node](), self._root, self.store.grain
        for start in range(0, len(tokens), grain):
            block = tuple(tokens[start : start + grain])
            own = {layer: rows[start : start + len(block)] for layer, rows in states.items()}
            child = self._covering(node, block, own)
            if child is None:
                handle = keep(start, start + len(block))
                if handle is None:
                    break
                child = self._add(node, block, handle, own)
                made.append(child)
            path.append(child)
            node = child
        self.memory.touch(path)
        self.memory.shrink()
        return [node for node in made if node.above is not None]

    @staticmethod
    def _covering(node: Node, block: Tokens, states: States) -> Node | None:
        """The node below that has the whole block; states that it lacks are put to it."""
        exact = node.below.get(block)
        if exact is not None:
            exact.states |= {layer: rows.clone() for layer, rows in states.items() if layer not in exact.states}
            return exact
        fitting = (child for child in node.below.values() if child.tokens[: len(block)] == block)
        return next((child for child in fitting if child.has([*states])), None)

    def _add(self, node: Node, block: Tokens, handle: Any, states: States) -> Node:
        """A new node, in place of those that have its first tokens alone and nothing more."""
        for child in [*node.below.values()]:
            if block[: len(child.tokens)] == child.tokens and {*child.states} <= {*states}:
                self.remove(child)
        own = {layer: rows.clone() for layer, rows in states.items()}
        made = Node(self, block, handle, self.store.size(handle), node, own)
        node.below[block] = made
        return made

    def remove(self, node: Node) -> None:
        """Take a node out with all below it."""
        for child in [*node.below.values()]:
            self.remove(child)
        if node.above is not None:
            del node.above.below[node.tokens]
            node.above = None
            self.memory.forget(node)
            self.store.drop(node.handle)

    def clear(self) -> None:
        """Take all nodes out."""
        self.remove(self._root)

    def timed(self, rows: int, seconds: float) -> None:
        """So many rows of a prompt were read in that time."""
        if rows > 0:
            self.row_s = min(seconds / rows, seconds / rows if self.row_s is None else self.row_s)
