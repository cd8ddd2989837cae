"""A tree of drafts, grown layer by layer from a drafter's probabilities."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from egag.draft_distribution import drafted_logits
from egag.length_rule import LengthRule
from sampling.forward.graphs.further import Feed
from sampling.forward.requests import StepGenerator
from sampling.forward.tree import Parents
from sampling.heads.config import HeadConfig
from utils.device.sent import OnDevice, kept
from utils.errors import NoDistribution
from utils.logits_processor import wide
from utils.parameter import Values

# Default accuracies by rank, for a head without published ones: the first candidate is right about half of the time.
_RANKS = ((0.5, 0.15, 0.08, 0.05, 0.03, 0.02, 0.02, 0.01),)


@dataclass(frozen=True, slots=True)
class TreeShape:
    """The shape of a tree: `width` children per node, `tokens` nodes in total.

    ranks: `[depth][rank]`, the accuracy of the token of that rank on held-out text. With ranks the tree has the same
    shape in every round, the best one by these numbers (Medusa, arXiv 2401.10774, section 3.3). With None the tree of
    each round follows the drafter's probabilities (EAGLE-2, 2406.16858). drawn: whether children are drawn. Drawn
    children need ranks: a shape that depends on drawn tokens would bias the output.
    """

    width: int
    tokens: int
    ranks: tuple[tuple[float, ...], ...] | None = None
    drawn: bool = False

    @classmethod
    def of(cls, config: HeadConfig, values: Values) -> "TreeShape | None":
        """The shape that the settings give for a head; None for a chain."""
        if values["draft_tree"] == "chain":
            return None
        kind, ranks = values["draft_tree"], tuple(map(tuple, config.ranks or _RANKS))
        if kind == "drawn":
            return cls(values["tree_width"], values["tree_tokens"], _falling(ranks), drawn=True)
        return cls(values["tree_width"], values["tree_tokens"], ranks if kind == "static" else None)


@dataclass(frozen=True, slots=True)
class Tree:
    """Drafts `[n]`, most probable first, parents before children.

    chances: `[n]`, the probability of the path down to each draft; NaN if the logits are NaN. probs: `[n, V]`, the
    distribution of each drawn draft; None for point masses.
    """

    tokens: Tensor
    parents: Parents
    chances: Tensor
    probs: Tensor | None = None


class PickedTokens(NamedTuple):
    """Candidate tokens of m nodes, the first to be tried first: tokens and probabilities `[m, w]`.

    probs: `[m, w, V]`, the distribution of each drawn candidate; None for the most probable tokens.
    """

    tokens: Tensor
    chances: Tensor
    probs: Tensor | None = None


Pick = Callable[[Tensor, int], PickedTokens]


def likeliest(logits: Tensor, width: int, draft_ids: Tensor | None = None) -> PickedTokens:
    """The most probable tokens of raw logits `[m, V]`. Probabilities are NaN if the logits are NaN.

    draft_ids: see `LogitsDistribution`.
    """
    likely = drafted_logits(logits, draft_ids)
    chances, places = torch.softmax(likely.float(), dim=-1).topk(min(width, likely.shape[1]), dim=-1)
    return PickedTokens(places if draft_ids is None else draft_ids[places], chances)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Drafts of one layer or several, `[m]` each: token, number of the parent (-1 = the text), probability of the path.

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
        """The nodes at these indices, in that order."""
        return _Nodes(*(part.index_select(0, places) for part in self._parts()))

    def best(self, count: int) -> Tensor:
        """The indices of the most probable nodes; on a tie the first."""
        return self.chances.sort(descending=True, stable=True).indices[:count]

    def and_then(self, more: "_Nodes") -> "_Nodes":
        """These nodes, followed by `more`."""
        return _Nodes(*(torch.cat(pair) for pair in zip(self._parts(), more._parts(), strict=True)))


def grow_tree(
    shape: TreeShape, depth: int, logits: Tensor, feed: Feed, rule: LengthRule, pick: Pick = likeliest
) -> StepGenerator[Tree]:
    """A tree of at most `shape.tokens` drafts and `depth` levels, cut by the rule.

    logits: `[1, V]`, after the text. feed: see `ForwardDrafter.feed`. pick: chooses the candidate tokens of a node. The
    best `width` nodes of each layer get `width` children each, and the best of all nodes are kept. The probability of a
    child is at most its parent's, so the best nodes form a tree. All steps run on the device of the logits. Only a rule
    that reads probabilities causes a device read.
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
        above = _each(torch.arange(fed, fed + len(chosen), device=logits.device), len(layer) // len(chosen))
        nodes, fed = nodes.and_then(layer), fed + len(chosen)
    return _kept(nodes, shape.tokens, rule)


def _kept(nodes: _Nodes, most: int, rule: LengthRule) -> Tree:
    """The best nodes, cut by the rule."""
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
    """The picked tokens of each parent, within the shape; `chances` are the parents' probabilities."""
    chances_below = picked.chances.to(chances.dtype)
    if shape.ranks is not None:
        shares = tuple(shape.ranks[min(level, len(shape.ranks) - 1)])
        ranks = kept(shares, wide(chances_below.device), chances_below.device)[: chances_below.shape[1]]
        chances_below = ranks + chances_below[:, :1] * 0.0
    width = chances_below.shape[1]
    below = chances.to(chances_below.device).unsqueeze(1) * chances_below
    probs = None if picked.probs is None else picked.probs[:, :width].flatten(0, 1)
    tokens = picked.tokens[:, :width].flatten()
    return _Nodes(tokens, _each(parents.to(chances_below.device), width), below.flatten(), probs)


def _each(numbers: Tensor, times: int) -> Tensor:
    """Every number `[m]` so many times in a row, `[m * times]`."""
    return numbers.unsqueeze(1).expand(-1, times).reshape(-1)


def _falling(ranks: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    """The accuracies, each limited to the one before it: siblings stay in the order of the draws."""
    return tuple(tuple(accumulate(row, min)) for row in ranks)
