"""A tree of drafts, grown layer by layer from the chances that a drafter gives."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from egag.controller import GammaController
from sampling.heads.config import HeadConfig
from utils.logits_processor import no_distribution
from utils.parameter import Values
from utils.sent import sent

# Ranks of a head that was published without them: a first guess is right about half of the time.
_RANKS = ((0.5, 0.15, 0.08, 0.05, 0.03, 0.02, 0.02, 0.01),)

Feed = Callable[[Tensor, Sequence[int]], Tensor]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Which drafts a tree has: `width` alternatives a node, `tokens` nodes in all.

    ranks: `[depth][rank]`, how often the token of that rank was right on held-out text. Where given, the tree
    is the same in every round, the most promising one by these numbers (Medusa, arXiv 2401.10774, section
    3.3). None: each round has the tree of its own chances (EAGLE-2, 2406.16858).
    """

    width: int
    tokens: int
    ranks: Sequence[Sequence[float]] | None = None

    @classmethod
    def of(cls, config: HeadConfig, values: Values) -> "TreeShape | None":
        """The shape that the settings ask of a head; None for a chain."""
        if values["draft_tree"] == "chain":
            return None
        ranks = (config.ranks or _RANKS) if values["draft_tree"] == "static" else None
        return cls(values["tree_width"], values["tree_tokens"], ranks)


@dataclass(frozen=True, slots=True)
class _Node:
    """A draft: its token, its parent's number (-1 = the text), the chance that the path down to it is right."""

    token: int
    parent: int
    chance: float


@dataclass(frozen=True, slots=True)
class Tree:
    """Drafts, most likely first, parents before children. chances: that the path down to each is right."""

    tokens: list[int]
    parents: tuple[int, ...]
    chances: tuple[float, ...]


def grow_tree(shape: TreeShape, depth: int, logits: Tensor, feed: Feed, rule: GammaController) -> Tree:
    """At most `shape.tokens` drafts, `depth` deep, as deep and as many as the rule has them.

    logits: `[1, V]` behind the text. feed: see `ForwardDrafter.feed`. The best `width` nodes of each layer get
    `width` children each; of all nodes the best are kept. A child's chance is at most its parent's, so that
    the best nodes form a tree.
    """
    nodes = _children(shape, 0, [-1], [1.0], logits)
    layer = list(range(len(nodes)))
    fed: dict[int, int] = {-1: -1}
    for level in range(1, depth):
        layer = sorted(layer, key=lambda place: -nodes[place].chance)[: shape.width]
        if not rule.deeper(level, [node.chance for node in nodes], [nodes[place].chance for place in layer]):
            break
        parents = [fed[nodes[place].parent] for place in layer]
        logits = feed(sent([nodes[place].token for place in layer], logits.device), parents)
        fed |= {place: len(fed) - 1 + number for number, place in enumerate(layer)}
        grown = _children(shape, level, layer, [nodes[place].chance for place in layer], logits)
        layer = list(range(len(nodes), len(nodes) + len(grown)))
        nodes += grown
    best = sorted(range(len(nodes)), key=lambda place: (-nodes[place].chance, place))[: shape.tokens]
    return _cut([nodes[place] for place in best], {place: row for row, place in enumerate(best)}, rule)


def _cut(best: Sequence[_Node], row_of: Mapping[int, int], rule: GammaController) -> Tree:
    """As many of the best nodes as the rule keeps."""
    parents = [row_of.get(node.parent, -1) for node in best]
    chances = [node.chance for node in best]
    count = rule.keep(chances, 0, parents)
    return Tree([node.token for node in best[:count]], tuple(parents[:count]), tuple(chances[:count]))


def _children(
    shape: TreeShape, level: int, parents: Sequence[int], chances: Sequence[float], logits: Tensor
) -> list[_Node]:
    """The most likely tokens behind each parent; `chances` are the parents'."""
    probs, tokens = torch.softmax(logits.float(), dim=-1).topk(min(shape.width, logits.shape[1]), dim=-1)
    table: Sequence[Sequence[float]] = probs.tolist()
    if any(math.isnan(row[0]) for row in table):
        raise no_distribution("drafter")
    if shape.ranks is not None:
        table = [shape.ranks[min(level, len(shape.ranks) - 1)]] * len(parents)
    return [
        _Node(token, parent, above * chance)
        for parent, above, row, ids in zip(parents, chances, table, tokens.tolist(), strict=True)
        for chance, token in zip(row, ids, strict=False)
    ]
