"""The tree of the likeliest paths, for a drafter that says in one pass what stands at each of the next places."""

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
    """Which drafts a tree has: the `tokens` likeliest paths, by the product of the places' own distributions.

    DDTree (arXiv 2604.12989): no other tree of so many nodes is expected to bring more, as long as what stands at a
    place does not depend on what stands before it.
    """

    tokens: int


class CandidateToken(NamedTuple):
    """A token that may stand at a place: the drafter's chance of it, and the rule's that it is accepted if judged."""

    token: int
    chance: float
    accepted: float


class Node(NamedTuple):
    """A draft: its token, its parent's row (-1 = the text), and the drafter's chance of the path down to it."""

    token: int
    parent: int
    chance: float


def best_first(logits: Tensor, most: int, rule: LengthRule) -> Proposal:
    """At most `most` drafts, as many as the rule keeps, from the raw logits `[depth, V]` of the next places.

    They are chosen and not drawn: point masses, which is what makes the tree lossless under sampling as well. The
    places' best tokens are read from the device once a round; the heap itself is a few steps of the host a node.
    """
    first = logits[0].clone()  # what a forward gave holds until the next one
    if not rule.tree_growth.start_tree(LogitsDistribution(first), len(logits)):
        return Proposal.empty(logits.device)
    nodes = list(likeliest(choices(logits, most, rule), most))
    tokens, parents, chances = zip(*nodes, strict=True)
    kept = rule.truncation.truncate(chances, 0, parents)
    if kept < len(nodes) and isnan(chances[0]):
        raise NoDistribution("drafter")
    if not kept:
        return Proposal.empty(logits.device)
    finite = one_if_finite(moved(torch.tensor(chances[:kept]), logits.device))
    return Proposal(sent(tokens[:kept], logits.device), parents[:kept], None, first, finite)


def choices(logits: Tensor, most: int, rule: LengthRule) -> list[list[CandidateToken]]:
    """What may stand at each place, what the rule thinks likeliest first: `most` tokens are enough for so many nodes.

    A token that cannot stand there is left out.
    """
    best = torch.softmax(logits.float(), dim=-1).topk(min(most, logits.shape[1]), dim=-1)
    read = torch.stack([best.indices.float(), best.values]).tolist()  # one read; ids below 2^24 are whole in float32
    return [_ranked(depth, zip(*place, strict=True), rule) for depth, place in enumerate(zip(*read, strict=True))]


def _ranked(depth: int, pairs: Iterable[tuple[float, float]], rule: LengthRule) -> list[CandidateToken]:
    children = [
        CandidateToken(int(token), chance, rule.tree_growth.acceptance(chance, depth))
        for token, chance in pairs
        if chance
    ]
    return sorted(children, key=lambda choice: choice.accepted, reverse=True)


def likeliest(places: Sequence[Sequence[CandidateToken]], most: int) -> Iterator[Node]:
    """The `most` paths that are likeliest to be accepted, likeliest first: each parent before its children.

    The likeliest path that is not in the tree yet is a sibling of a node that is, one rank below it, or a node's first
    child: a heap that holds those of all nodes so far gives the paths in order.

    Example: chances .6, .4 at the first place and .9, .1 at the second: .6, .54, .4, .36, .06, .04.
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
        yield Node(choice.token, parent, made[-1][1])
