"""Best-first trees, for drafters that give the distribution of each of the next positions in one forward."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import isnan
from typing import NamedTuple

import torch
from torch import Tensor

from egag.draft_distribution import LogitsDistribution
from egag.length_rule import LengthRule
from sampling.proposal import Proposal
from utils.device.sent import moved, sent
from utils.errors import NoDistribution
from utils.logits_processor import one_if_finite


@dataclass(frozen=True, slots=True)
class BestFirst:
    """The shape of a tree: the `tokens` paths with the largest product of the positions' probabilities.

    Source: DDTree (arXiv 2604.12989). No other tree of that size has a higher expected acceptance, if the distribution
    of a position does not depend on the tokens before it.
    """

    tokens: int


class CandidateToken(NamedTuple):
    """A candidate token of a position.

    chance: the drafter's probability of the token. accepted: the rule's probability that it is accepted if judged.
    """

    token: int
    chance: float
    accepted: float


class DraftNode(NamedTuple):
    """A draft: its token, the row of its parent (-1 = the text), and the drafter's probability of its path."""

    token: int
    parent: int
    chance: float


def best_first(logits: Tensor, most: int, rule: LengthRule) -> Proposal:
    """A tree of at most `most` drafts, cut by the rule, from the raw logits `[depth, V]` of the next positions.

    The drafts are chosen and not drawn. They are point masses, so the tree is lossless under sampling as well. The best
    tokens of the positions are read from the device once per round. The heap takes a few host steps per node.
    """
    distribution = LogitsDistribution(logits[0])
    if not rule.tree_growth.start_tree(distribution, len(logits)):
        return Proposal.empty(logits.device)
    nodes = list(likeliest(choices(logits, most, rule), most))
    tokens, parents, chances = zip(*nodes, strict=True)
    kept = rule.truncation.truncate(chances, 0, parents)
    if kept < len(nodes) and isnan(chances[0]):
        raise NoDistribution("drafter")
    if not kept:
        return Proposal.empty(logits.device)
    finite = one_if_finite(moved(torch.tensor(chances[:kept]), logits.device))
    return Proposal(sent(tokens[:kept], logits.device), parents[:kept], None, distribution.nats, finite)


def choices(logits: Tensor, most: int, rule: LengthRule) -> list[list[CandidateToken]]:
    """The candidates of each position, in the order of the rule's acceptance.

    `most` candidates suffice for that many nodes. Tokens of probability 0 are left out.
    """
    best = torch.softmax(logits.float(), dim=-1).topk(min(most, logits.shape[1]), dim=-1)
    read = torch.stack([best.indices.float(), best.values]).tolist()  # one read; ids below 2^24 are exact in float32
    return [_ranked(depth, zip(*place, strict=True), rule) for depth, place in enumerate(zip(*read, strict=True))]


def _ranked(depth: int, pairs: Iterable[tuple[float, float]], rule: LengthRule) -> list[CandidateToken]:
    children = [
        CandidateToken(int(token), chance, rule.tree_growth.acceptance(chance, depth))
        for token, chance in pairs
        if chance
    ]
    return sorted(children, key=lambda choice: choice.accepted, reverse=True)


def likeliest(places: Sequence[Sequence[CandidateToken]], most: int) -> Iterator[DraftNode]:
    """The `most` paths with the highest acceptance probability, in falling order: each parent before its children.

    The next path is the sibling one rank below a node of the tree, or the first child of a node. A heap of these
    candidates therefore gives the paths in order.

    Example: probabilities .6, .4 at the first position and .9, .1 at the second: .6, .54, .4, .36, .06, .04.
    """
    made: list[tuple[float, float]] = []
    order = count()
    heap: list[tuple[float, int, int, int, int]] = []

    def push(parent: int, depth: int, rank: int) -> None:
        if depth < len(places) and rank < len(places[depth]):
            above = 1.0 if parent < 0 else made[parent][0]
            heappush(heap, (-above * places[depth][rank].accepted, next(order), parent, depth, rank))

    push(-1, 0, 0)
    while heap and len(made) < most:
        survival, _, parent, depth, rank = heappop(heap)
        choice, above = places[depth][rank], 1.0 if parent < 0 else made[parent][1]
        made.append((-survival, above * choice.chance))
        push(parent, depth, rank + 1)
        push(len(made) - 1, depth + 1, 0)
        yield DraftNode(choice.token, parent, made[-1][1])
