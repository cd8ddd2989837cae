"""The tree of earlier responses: a compressed trie that can evict the oldest one."""

from collections import deque
from collections.abc import Sequence

from ngram_assisted.suffix_tree import Branch, Match


class _Node:
    """An edge with the node at its end: `length` tokens of `text` from `start`, shared by `count` suffixes.

    The text is the newest response through this edge, so it exists as long as the node.
    """

    __slots__ = ("best", "children", "count", "length", "start", "text")

    def __init__(self, text: tuple[int, ...], start: int, length: int, count: int) -> None:
        self.text, self.start, self.length, self.count = text, start, length, count
        self.children: dict[int, _Node] | None = None
        self.best: _Node | None = None

    def put(self, child: "_Node") -> None:
        """Attach a child node; it replaces a child with the same first token."""
        if self.children is None:
            self.children = {}
        self.children[child.text[child.start]] = child


TreePlace = tuple[_Node, int]
DeepPlace = tuple[_Node, int, int]
"""A place in the tree, and its depth in tokens from the root."""


class ResponseTree:
    """Every substring of up to `depth` tokens of some responses, with its number of occurrences.

    max_responses: the largest number of responses. Beyond it the oldest is evicted with its counts and unused nodes. -1
    = no limit, 0 = none. n tokens make at most 2n nodes: a response of 256 tokens takes about 50 kB.
    """

    def __init__(self, depth: int = 64, max_responses: int = -1) -> None:
        self.depth, self.max_responses = depth, max_responses
        self._responses: deque[tuple[int, ...]] = deque()
        self._root = _Node((), 0, 0, 0)
        self._nodes = 0

    @property
    def responses(self) -> int:
        """The number of responses."""
        return len(self._responses)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self._nodes

    @property
    def memory_bytes(self) -> int:
        """An estimate: 150 bytes per node with its share of dictionaries (measured: 140 to 170), and the tokens."""
        return self._nodes * 150 + sum(len(response) for response in self._responses) * 8

    def add(self, response: Sequence[int]) -> None:
        """Add a response; the oldest one is evicted if there is no room."""
        if self.max_responses == 0 or not response:
            return
        text = tuple(response)
        self._responses.append(text)
        for start in range(len(text)):
            self._insert(text, start, min(len(text), start + self.depth))
        if 0 < self.max_responses < len(self._responses):
            self._forget(self._responses.popleft())

    def add_all(self, other: "ResponseTree") -> None:
        """Add the responses of another tree from its texts alone; its nodes may be in the middle of an update."""
        for response in other._responses:
            self.add(response)

    def follow(self, token: int, places: Sequence[TreePlace]) -> list[TreePlace]:
        """The places after one more token, from the root and from each of `places`, as long as the token is found."""
        places_found: list[TreePlace] = []
        for node, at in ((self._root, 0), *places):
            if at < node.length:
                if node.text[node.start + at] != token:
                    break
                places_found.append((node, at + 1))
            elif node.children and token in node.children:
                places_found.append((node.children[token], 1))
            else:
                break
        return places_found

    def _insert(self, text: tuple[int, ...], at: int, end: int) -> None:
        """Count the suffix `text[at:end]` along its path from the root."""
        node = self._root
        while at < end:
            child = node.children.get(text[at]) if node.children else None
            if child is None:
                child = self._leaf(node, text, at, end)
            else:
                common = _common(child, text, at, min(child.length, end - at))
                if common < child.length:
                    child = self._split(node, child, common)
                child.count += 1
                child.text, child.start = text, at
            _rank(node, child)
            at += child.length
            node = child

    def _leaf(self, node: _Node, text: tuple[int, ...], at: int, end: int) -> _Node:
        leaf = _Node(text, at, end - at, 1)
        node.put(leaf)
        self._nodes += 1
        return leaf

    def _split(self, parent: _Node, node: _Node, length: int) -> _Node:
        """Split a node's edge after `length` tokens, and return the upper part."""
        upper = _Node(node.text, node.start, length, node.count)
        node.start += length
        node.length -= length
        upper.put(node)
        upper.best = node
        parent.put(upper)
        if parent.best is node:
            parent.best = upper
        self._nodes += 1
        return upper

    def _forget(self, text: tuple[int, ...]) -> None:
        for start in range(len(text)):
            self._remove(text, start, min(len(text), start + self.depth))

    def _remove(self, text: tuple[int, ...], at: int, end: int) -> None:
        """Remove one suffix. A node without a suffix is removed with its subtree, which belongs to that suffix."""
        above, node = self._root, self._root
        while at < end:
            children = node.children or {}
            child = children[text[at]]
            child.count -= 1
            if node.best is child:
                node.best = None
            if child.count == 0:
                del children[text[at]]
                self._nodes -= _size(child)
                break
            at += child.length
            above, node = node, child
        self._merge(above, node)

    def _merge(self, parent: _Node, node: _Node) -> None:
        """Join a node with its only child if no suffix ends between them."""
        if node is self._root or not node.children or len(node.children) > 1:
            return
        (child,) = node.children.values()
        if child.count == node.count:
            child.start -= node.length
            child.length += node.length
            parent.put(child)
            parent.best = None
            self._nodes -= 1


class Recollection:
    """The matches of a growing text in the remembered responses; stale after a response is added.

    It keeps the place of every suffix of the text. A token moves each place by one step, which costs less than a new
    search from the root. depth: the longest substring that counts, at most the depth of the memory. The counts up to
    this depth do not depend on the depth of the memory.
    """

    def __init__(self, memory: ResponseTree, depth: int | None = None) -> None:
        self.memory, self.depth = memory, memory.depth if depth is None else depth
        self._places: list[TreePlace] = []
        self._read = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Read more tokens: only the last `depth` tokens matter."""
        self._read += len(tokens)
        for token in tokens[-self.depth :]:
            self._places = self.memory.follow(token, self._places[: self.depth - 2])

    def matches(self) -> list[Match[DeepPlace]]:
        """The places of the text's suffixes, longest first; suffixes that occur equally often share a place."""
        places = self._places[: max(0, self._read - 1)]
        counts = [place[0].count for place in places]
        matches_found: list[Match[DeepPlace]] = []
        longest = len(counts)
        while longest:
            shortest, count = longest, counts[longest - 1]
            while shortest > 1 and counts[shortest - 2] == count:
                shortest -= 1
            matches_found.append(Match(shortest, longest, count, (*places[shortest - 1], shortest)))
            longest = shortest - 1
        return matches_found

    def likeliest(self, place: DeepPlace) -> Branch[DeepPlace] | None:
        node, at, deep = place
        if deep == self.depth:
            return None
        if at < node.length:
            return node.text[node.start + at], node.count, (node, at + 1, deep + 1)
        if not node.children:
            return None
        if node.best is None:
            node.best = max(node.children.values(), key=lambda child: child.count)
        best = node.best
        return best.text[best.start], best.count, (best, 1, deep + 1)

    def branches(self, place: DeepPlace, least: int = 0) -> list[Branch[DeepPlace]]:
        node, at, deep = place
        if deep == self.depth:
            return []
        if at < node.length:
            return [(node.text[node.start + at], node.count, (node, at + 1, deep + 1))] if node.count >= least else []
        children = (node.children or {}).items()
        return [(token, child.count, (child, 1, deep + 1)) for token, child in children if child.count >= least]


def _common(node: _Node, text: tuple[int, ...], at: int, length: int) -> int:
    """The number of the `length` tokens of a node's edge that equal `text[at:]`; one comparison if all do."""
    edge, start = node.text, node.start
    if edge[start : start + length] == text[at : at + length]:
        return length
    for place in range(length):
        if edge[start + place] != text[at + place]:
            return place
    return length


def _rank(node: _Node, child: _Node) -> None:
    """Update the most frequent child after the count of `child` rose; on a tie `child` wins, as in `TextTree`.

    None means that the child is searched at its next use, which is the case after an eviction.
    """
    best = node.best
    if (best is None and len(node.children or ()) == 1) or (best is not None and child.count >= best.count):
        node.best = child


def _size(node: _Node) -> int:
    """The number of nodes of this subtree."""
    return 1 + sum(_size(child) for child in (node.children or {}).values())
