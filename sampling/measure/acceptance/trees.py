"""A tree of ranks along texts: which of a drafter's likeliest tokens stand at each node, and what that gives."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sampling.measure.acceptance.met import TOP, Met
from utils.errors import UserError, wrong_value
from utils.json_text import read_json

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankTree:
    """paths: of each node the ranks from the root on, 0 the most likely; every node's parent is one of them."""

    paths: frozenset[Path]

    @classmethod
    def parse(cls, text: str) -> "RankTree":
        """Widths by depth ("4,2,1": a full tree) or Medusa's choices ("[[0], [0, 0], [1]]"). Raises `UserError`."""
        if text.lstrip().startswith("["):
            return cls._of_choices(text)
        widths = text.split(",")
        if not all(width.strip().isdecimal() and 1 <= int(width) <= TOP for width in widths) or len(widths) > 16:
            raise wrong_value("--tree", text, f'widths by depth of 1 to {TOP}, such as "4,2,1", or "[[0], [0, 0]]"')
        paths: set[Path] = set()
        level: list[Path] = [()]
        for width in map(int, widths):
            level = [(*path, rank) for path in level for rank in range(width)]
            paths.update(level)
            if len(paths) > 4096:
                raise UserError(f"--tree {text!r}: more than 4,096 nodes; expected a smaller tree")
        return cls(frozenset(paths))

    @classmethod
    def _of_choices(cls, text: str) -> "RankTree":
        try:
            paths = frozenset(tuple(int(rank) for rank in path) for path in read_json(text))
        except (TypeError, ValueError):
            paths = frozenset()
        whole = all(path and path[:-1] in paths | {()} and all(0 <= rank < TOP for rank in path) for path in paths)
        if not paths or not whole:
            raise wrong_value("--tree", text, f"lists of ranks of 0 to {TOP - 1}, each with its parent among them")
        return cls(paths)

    @property
    def depth(self) -> int:
        """Levels."""
        return max(map(len, self.paths))

    def children(self, path: Path) -> list[int]:
        """The ranks behind a node."""
        return sorted(node[-1] for node in self.paths if node[:-1] == path)


def on_tree(met: Met, tree: RankTree) -> Met:
    """What the tree meets where the chain met `met`. Its nodes are points: one is accepted as often as the target says.

    Raises `ValueError` for a drafter that gives no ranks, or a tree that is deeper than what was met.
    """
    if met.cover is None or met.rank is None or tree.depth > met.depth:
        raise ValueError("no ranks, or not to this depth")
    mass = np.diff(met.cover, axis=2, prepend=0.0)
    accept, follow = np.full((met.places, tree.depth), np.nan), np.zeros((met.places, tree.depth))
    drafted = np.zeros((met.places, tree.depth), dtype=bool)
    at: dict[Path, np.ndarray] = {(): np.arange(met.places)}
    for depth in range(tree.depth):
        known = ~np.isnan(met.accept[:, depth])
        below: dict[Path, np.ndarray] = {}
        for path, places in at.items():
            ranks = tree.children(path)
            there = met.drafted[places, depth] & bool(ranks)
            drafted[places, depth] = there
            masses = mass[places, depth][:, ranks].sum(axis=1) * there
            accept[places, depth] = np.where(known[places], masses.clip(0.0, 1.0), np.nan)
            rank = met.rank[places, depth]
            among = np.isin(rank, ranks) & there
            off = np.isnan(met.follow[places, depth])
            follow[places, depth] = np.where(off, np.nan, among)
            for one in ranks:
                going = places[among & ~off & (rank == one)]
                if len(going):
                    below[*path, one] = going
        at = below
    return Met(drafted, accept, follow)


def on_trees(mets: Sequence[Met], tree: RankTree) -> list[Met]:
    """The same of all texts."""
    return [on_tree(met, tree) for met in mets]
