"""A tree of drafts, grown layer by layer from the chances that a drafter gives."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from egag.length_rule import LengthRule
from sampling.forward.requests import StepGenerator
from sampling.forward.tree import Parents
from sampling.heads.config import HeadConfig
from utils.device.sent import OnDevice, kept
from utils.errors import NoDistribution
from utils.logits_processor import wide
from utils.parameter import Values

# Ranks of a head that was published without them: a first guess is right about half of the time.
_RANKS = ((0.5, 0.15, 0.08, 0.05, 0.03, 0.02, 0.02, 0.01),)

Feed = Callable[[Tensor, Tensor | None], StepGenerator[Tensor]]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Which drafts a tree has: `width` alternatives a node, `tokens` nodes in all.

    ranks: `[depth][rank]`, how often the token of that rank was right on held-out text. Where given, the tree
    is the same in every round, the most promising one by these numbers (Medusa, arXiv 2401.10774, section
    3.3). None: each round has the tree of its own chances (EAGLE-2, 2406.16858). drawn: alternatives are
    drawn, which asks for ranks: a tree whose shape depended on what was drawn would bend the output.
    """

    width: int
    tokens: int
    ranks: Sequence[Sequence[float]] | None = None
    drawn: bool = False

    @classmethod
    def of(cls, config: HeadConfig, values: Values) -> "TreeShape | None":
        """The shape that the settings ask of a head; None for a chain."""
        if values["draft_tree"] == "chain":
            return None
        kind, ranks = values["draft_tree"], config.ranks or _RANKS
        if kind == "drawn":
            return cls(values["tree_width"], values["tree_tokens"], _falling(ranks), drawn=True)
        return cls(values["tree_width"], values["tree_tokens"], ranks if kind == "static" else None)


@dataclass(frozen=True, slots=True)
class Tree:
    """Drafts `[n]`, most likely first, parents before children.

    chances: `[n]`, that the path down to each is right; NaN where logits were. probs: `[n, V]`, what each was drawn
    from; None where none was drawn.
    """

    tokens: Tensor
    parents: Parents
    chances: Tensor
    probs: Tensor | None = None


class PickedTokens(NamedTuple):
    """Alternatives behind m places, the first to be tried first: tokens and chances `[m, w]`.

    probs: `[m, w, V]`, what each was drawn from; None where they are the likeliest.
    """

    tokens: Tensor
    chances: Tensor
    probs: Tensor | None = None


Pick = Callable[[Tensor, int], PickedTokens]


def likeliest(logits: Tensor, width: int) -> PickedTokens:
    """The most likely tokens behind raw logits `[m, V]`. NaN where the logits are."""
    chances, tokens = torch.softmax(logits.float(), dim=-1).topk(min(width, logits.shape[1]), dim=-1)
    return PickedTokens(tokens, chances)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Drafts of one layer or of several, `[m]` each: token, the parent's number (-1 = the text), chance of the path.

    probs: `[m, V]`, see `Tree`.
    """

    tokens: Tensor
    parents: Tensor
    chances: Tensor
    probs: Tensor | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def _parts(self) -> list[Tensor]:
        return [tensor for tensor in (self.tokens, self.parents, self.chances, self.probs) if tensor is not None]

    def at(self, places: Tensor) -> "_Nodes":
        """Some of them, in that order."""
        return _Nodes(*(part.index_select(0, places) for part in self._parts()))

    def best(self, count: int) -> Tensor:
        """Places of the most likely ones, the first of equals before the others."""
        return self.chances.sort(descending=True, stable=True).indices[:count]

    def and_then(self, more: "_Nodes") -> "_Nodes":
        """These and those behind them."""
        return _Nodes(*(torch.cat(pair) for pair in zip(self._parts(), more._parts(), strict=True)))


def grow_tree(
    shape: TreeShape, depth: int, logits: Tensor, feed: Feed, rule: LengthRule, pick: Pick = likeliest
) -> StepGenerator[Tree]:
    """At most `shape.tokens` drafts, `depth` deep, as deep and as many as the rule has them.

    logits: `[1, V]` behind the text. feed: see `ForwardDrafter.feed`. pick: which tokens stand behind a node. The best
    `width` nodes of each layer get `width` children each; of all nodes the best are kept. A child's chance is at most
    its parent's, so that the best nodes form a tree. All of it happens where the logits are: only a rule that looks at
    chances reads them.
    """
    root = torch.full((1,), -1, device=logits.device)
    layer = nodes = _children(shape, 0, root, root.new_ones(1, dtype=wide(logits.device)), pick(logits, shape.width))
    above, fed = layer.parents, 0
    for level in range(1, depth):
        places = layer.best(shape.width)
        chosen = layer.at(places)
        if not rule.tree_growth.expand_layer(level, OnDevice(nodes.chances), OnDevice(chosen.chances)):
            break
        logits = yield from feed(chosen.tokens, above.index_select(0, places))
        numbers = places + (len(nodes) - len(layer))
        layer = _children(shape, level, numbers, chosen.chances, pick(logits, shape.width))
        above = torch.arange(fed, fed + len(chosen), device=logits.device).repeat_interleave(len(layer) // len(chosen))
        nodes, fed = nodes.and_then(layer), fed + len(chosen)
    return _kept(nodes, shape.tokens, rule)


def _kept(nodes: _Nodes, most: int, rule: LengthRule) -> Tree:
    """The best nodes, and as many of them as the rule keeps."""
    places = nodes.best(most)
    best = nodes.at(places)
    row_of = torch.full((len(nodes) + 1,), -1, device=places.device)
    row_of.scatter_(0, places + 1, torch.arange(len(best), device=places.device))
    parents = row_of.index_select(0, best.parents + 1)
    chances = OnDevice[float](best.chances)
    count = rule.truncation.truncate(chances, 0, Parents(parents))
    if count < len(chances) and math.isnan(chances[0]):
        raise NoDistribution("drafter")
    kept_ = None if best.probs is None else best.probs[:count]
    return Tree(best.tokens[:count], Parents(parents[:count]), best.chances[:count], kept_)


def _children(shape: TreeShape, level: int, parents: Tensor, chances: Tensor, picked: PickedTokens) -> _Nodes:
    """The tokens that were picked behind each parent, as many as the shape has; `chances` are the parents'."""
    chances_below = picked.chances.to(chances.dtype)
    if shape.ranks is not None:
        shares = tuple(shape.ranks[min(level, len(shape.ranks) - 1)])
        ranks = kept(shares, wide(chances_below.device), chances_below.device)[: chances_below.shape[1]]
        chances_below = ranks + chances_below[:, :1] * 0.0
    width = chances_below.shape[1]
    below = chances.to(chances_below.device).unsqueeze(1) * chances_below
    probs = None if picked.probs is None else picked.probs[:, :width].flatten(0, 1)
    tokens = picked.tokens[:, :width].flatten()
    return _Nodes(tokens, parents.to(chances_below.device).repeat_interleave(width), below.flatten(), probs)


def _falling(ranks: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """The same, none above the one before it: siblings stay in the order in which they were drawn."""
    return [tuple(accumulate(row, min)) for row in ranks]
