"""A tree of drafts, grown layer by layer from the chances that a drafter gives."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from egag.controller import GammaController
from sampling.forward.asked import Asking
from sampling.forward.tree import Parents
from sampling.heads.config import HeadConfig
from utils.logits_processor import no_distribution, wide
from utils.parameter import Values
from utils.sent import OnDevice, kept

# Ranks of a head that was published without them: a first guess is right about half of the time.
_RANKS = ((0.5, 0.15, 0.08, 0.05, 0.03, 0.02, 0.02, 0.01),)

Feed = Callable[[Tensor, Tensor | None], Asking[Tensor]]


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
class Tree:
    """Drafts `[n]`, most likely first, parents before children.

    chances: `[n]`, that the path down to each is right; NaN where logits were.
    """

    tokens: Tensor
    parents: Parents
    chances: Tensor


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Drafts of one layer or of several, `[m]` each: token, the parent's number (-1 = the text), chance of the path."""

    tokens: Tensor
    parents: Tensor
    chances: Tensor

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def at(self, places: Tensor) -> "_Nodes":
        """Some of them, in that order."""
        return _Nodes(*(one.index_select(0, places) for one in (self.tokens, self.parents, self.chances)))

    def best(self, count: int) -> Tensor:
        """Places of the most likely ones, the first of equals before the others."""
        return self.chances.sort(descending=True, stable=True).indices[:count]

    def and_then(self, more: "_Nodes") -> "_Nodes":
        """These and those behind them."""
        pairs = zip((self.tokens, self.parents, self.chances), (more.tokens, more.parents, more.chances), strict=True)
        return _Nodes(*(torch.cat(pair) for pair in pairs))


def grow_tree(shape: TreeShape, depth: int, logits: Tensor, feed: Feed, rule: GammaController) -> Asking[Tree]:
    """At most `shape.tokens` drafts, `depth` deep, as deep and as many as the rule has them.

    logits: `[1, V]` behind the text. feed: see `ForwardDrafter.feed`. The best `width` nodes of each layer get
    `width` children each; of all nodes the best are kept. A child's chance is at most its parent's, so that
    the best nodes form a tree. All of it happens where the logits are: only a rule that looks at chances reads them.
    """
    root = torch.full((1,), -1, device=logits.device)
    layer = nodes = _children(shape, 0, root, root.new_ones(1, dtype=wide(logits.device)), logits)
    above, fed = layer.parents, 0
    for level in range(1, depth):
        places = layer.best(shape.width)
        chosen = layer.at(places)
        if not rule.deeper(level, OnDevice(nodes.chances), OnDevice(chosen.chances)):
            break
        logits = yield from feed(chosen.tokens, above.index_select(0, places))
        numbers = places + (len(nodes) - len(layer))
        layer = _children(shape, level, numbers, chosen.chances, logits)
        above = torch.arange(fed, fed + len(chosen), device=logits.device).repeat_interleave(len(layer) // len(chosen))
        nodes, fed = nodes.and_then(layer), fed + len(chosen)
    return _kept(nodes, shape.tokens, rule)


def _kept(nodes: _Nodes, most: int, rule: GammaController) -> Tree:
    """The best nodes, and as many of them as the rule keeps."""
    places = nodes.best(most)
    best = nodes.at(places)
    row_of = torch.full((len(nodes) + 1,), -1, device=places.device)
    row_of.scatter_(0, places + 1, torch.arange(len(best), device=places.device))
    parents = row_of.index_select(0, best.parents + 1)
    chances = OnDevice[float](best.chances)
    count = rule.keep(chances, 0, Parents(parents))
    if count < len(chances) and math.isnan(chances[0]):
        raise no_distribution("drafter")
    return Tree(best.tokens[:count], Parents(parents[:count]), best.chances[:count])


def _children(shape: TreeShape, level: int, parents: Tensor, chances: Tensor, logits: Tensor) -> _Nodes:
    """The most likely tokens behind each parent; `chances` are the parents'. NaN where the logits are."""
    probs, tokens = torch.softmax(logits.float(), dim=-1).topk(min(shape.width, logits.shape[1]), dim=-1)
    own = probs.to(chances.dtype)
    if shape.ranks is not None:
        shares = tuple(shape.ranks[min(level, len(shape.ranks) - 1)])
        ranks = kept(shares, wide(logits.device), logits.device)[: own.shape[1]]
        own, tokens = ranks + own[:, :1] * 0.0, tokens[:, : len(ranks)]
    width = own.shape[1]
    below = chances.to(own.device).unsqueeze(1) * own
    return _Nodes(tokens.flatten(), parents.to(own.device).repeat_interleave(width), below.flatten())
