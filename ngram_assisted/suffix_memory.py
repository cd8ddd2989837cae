"""The tree of earlier responses: a compressed trie that can forget the oldest one."""

from collections import deque
from collections.abc import Sequence

from ngram_assisted.suffix_tree import Branch, Match


class _Node:
    """An edge with the node at its end: `length` tokens of `text` from `start`, on `count` suffixes' way.

    The text is the newest response that passes here, so that it is there as long as the node is.
    """

    __slots__ = ("best", "children", "count", "length", "start", "text")

    def __init__(self, text: tuple[int, ...], start: int, length: int, count: int) -> None:
        self.text, self.start, self.length, self.count = text, start, length, count
        self.children: dict[int, _Node] | None = None
        self.best: _Node | None = None

    def put(self, child: "_Node") -> None:
        """Hang a node below, in place of one that began with the same token."""
        if self.children is None:
            self.children = {}
        self.children[child.text[child.start]] = child


TreePlace = tuple[_Node, int]
DeepPlace = tuple[_Node, int, int]
"""A place, and how many tokens lead to it from the root."""


class ResponseTree:
    """Every substring of up to `depth` tokens of some responses, with its number of occurrences.

    max_responses: as many are remembered, then the oldest goes, with its counts and the nodes that only it
    needed; -1 = no limit, 0 = none. n tokens make at most 2n nodes: a response of 256 tokens takes about
    50 kB.
    """

    def __init__(self, depth: int = 64, max_responses: int = -1) -> None:
        self.depth, self.max_responses = depth, max_responses
        self._responses: deque[tuple[int, ...]] = deque()
        self._root = _Node((), 0, 0, 0)
        self._nodes = 0

    @property
    def responses(self) -> int:
        """How many responses are remembered."""
        return len(self._responses)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self._nodes

    @property
    def memory_bytes(self) -> int:
        """Estimate: 150 bytes a node, its share of dictionaries in it (measured: 140 to 170), and the tokens."""
        return self._nodes * 150 + sum(len(response) for response in self._responses) * 8

    def add(self, response: Sequence[int]) -> None:
        """Remember a response; the oldest one goes where there is no room."""
        if self.max_responses == 0 or not response:
            return
        text = tuple(response)
        self._responses.append(text)
        for start in range(len(text)):
            self._insert(text, start, min(len(text), start + self.depth))
        if 0 < self.max_responses < len(self._responses):
            self._forget(self._responses.popleft())

    def add_all(self, other: "ResponseTree") -> None:
        """Remember what another tree does, from its texts alone: it may have been left in the middle of a step."""
        for response in other._responses:
            self.add(response)

    def follow(self, token: int, places: Sequence[TreePlace]) -> list[TreePlace]:
        """The places after one more token, from the root and from each of `places`, until it is not found."""
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
        """Count the suffix `text[at:end]` on its way down from the root."""
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
        """Cut a node's edge after `length` tokens; the upper part is returned."""
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
        """Take back one suffix; a node that no suffix needs goes, with all below it (there is one suffix)."""
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
        """Join a node with its only child where nothing ends between them."""
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
    """What the remembered responses say about a text that is being read; stale once a response is added.

    It keeps the place of every end of the text: a token moves each of them one step, which costs less than
    searching them all from the root. depth: of the substrings that count, that of the memory at most, which has no
    other counts for them than a memory of this depth.
    """

    def __init__(self, memory: ResponseTree, depth: int | None = None) -> None:
        self.memory, self.depth = memory, memory.depth if depth is None else depth
        self._places: list[TreePlace] = []
        self._read = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Read on: only the last `depth` tokens matter."""
        self._read += len(tokens)
        for token in tokens[-self.depth :]:
            self._places = self.memory.follow(token, self._places[: self.depth - 2])

    def matches(self) -> list[Match[DeepPlace]]:
        """Where ends of the text occur, longest first; those that occur equally often share a place."""
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
    """How many of `length` tokens of a node's edge equal `text[at:]`; one comparison where all do."""
    edge, start = node.text, node.start
    if edge[start : start + length] == text[at : at + length]:
        return length
    for place in range(length):
        if edge[start + place] != text[at + place]:
            return place
    return length


def _rank(node: _Node, child: _Node) -> None:
    """Keep the most frequent child, after the count of `child` went up; on a tie it, as `TextTree` does.

    None stands for "look for it when it is asked for", which an eviction leaves behind.
    """
    best = node.best
    if (best is None and len(node.children or ()) == 1) or (best is not None and child.count >= best.count):
        node.best = child


def _size(node: _Node) -> int:
    """Number of nodes from here down."""
    return 1 + sum(_size(child) for child in (node.children or {}).values())
