"""Traversal verification: a tree of drawn drafts is judged from its leaves upwards."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sampling.forward.tree import children
from sampling.proposal import Proposal
from sampling.verify.block import BlockVerifier
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import DeviceVerdict, distribution_of
from utils.logits_processor import sample
from utils.numbers.random_numbers import RNG, uniform


class TraversalVerifier(BlockVerifier):
    """Traversal verification (arXiv 2505.12398): block verification on a tree, and on a chain the same.

    A draft is judged when nothing below it was kept, with the chance w that its path has by then. Where it goes too,
    its parent's distribution and chance become what the draft left of them, and the next sibling's path begins there.
    Judged from the root, a branch is lost with its first rejected draft, however much the target likes what follows.

    Of a tree of point masses as many come through from the root; it is judged so.
    """

    is_argmax_under_greedy = True

    def _siblings(self, batch: ProposalBatch, tree: Proposal, p: Tensor, rng: RNG) -> DeviceVerdict:
        walk = _Walk(tree, p, uniform((len(tree),), rng, p.device, torch.float32, "coin"))
        walk.visit(-1, p.new_ones(()))
        return DeviceVerdict(walk.end.view(1), sample(walk.here.unsqueeze(0), rng))


@dataclass(slots=True)
class _Walk:
    """A tree on the way: the first draft that was kept, leaves before their parents, and what is left of p behind it.

    coins: `[n]`, the coin of each draft. end, here: -1 and the distribution at the root until a draft was kept.
    """

    proposal: Proposal
    p: Tensor
    coins: Tensor
    below: dict[int, list[int]] = field(init=False)
    end: Tensor = field(init=False)
    here: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.below = children(self.proposal.parent_rows)
        self.end, self.here = torch.full((), -1, device=self.p.device), self.p[0]

    def visit(self, row: int, w: Tensor) -> None:
        """All below a draft, then itself: w is the chance (0-d) of its path."""
        p = self.p[row + 1]
        for child in self.below[row]:
            q = distribution_of(self.proposal, torch.full((), child, device=p.device), p.unsqueeze(0))
            token = self.proposal.tokens[child]
            self.visit(child, (w * p[token] / q[token]).clamp(max=1.0))
            w, p = without(w, p, q)
        keep = self.end < 0
        if row >= 0:
            keep = keep & (self.coins[row] < w)
        self.end, self.here = torch.where(keep, row, self.end), torch.where(keep, p, self.here)


def without(w: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """A path's chance and the distribution behind it, once a child that was drawn from q is gone with all below it."""
    rest = (w * p - q).clamp(min=0.0)
    mass = rest.sum()
    room = mass + 1.0 - w
    chance = torch.where(room > 0.0, mass / room, 1.0)
    return chance, torch.where(mass > 0.0, rest / mass, p)
