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
    """Traversal verification (arXiv 2505.12398): block verification on a tree, and equal to it on a chain.

    A draft is judged if no draft below it was kept, with the probability w that its path has by then. If the draft is
    rejected too, its parent gets the residual distribution and probability, and the next sibling's path begins there.
    Verification from the root loses a branch with its first rejected draft, however well the target likes the rest.

    For a tree of point masses verification from the root accepts equally many drafts, so the verifier uses it.
    """

    is_argmax_under_greedy = True

    def _siblings(self, batch: ProposalBatch, tree: Proposal, p: Tensor, rng: RNG) -> DeviceVerdict:
        walk = _Walk(tree, p, uniform((len(tree),), rng, p.device, torch.float32, "coin"))
        walk.visit(-1, p.new_ones(()))
        return DeviceVerdict(walk.end.view(1), sample(walk.here.unsqueeze(0), rng))


@dataclass(slots=True)
class _Walk:
    """A walk over a tree, leaves before their parents: the first draft that was kept, and the residual of p after it.

    coins: `[n]`, the coin of each draft. end, here: -1 and the distribution at the root until a draft is kept.
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
        """Visit all drafts below a draft, then the draft itself. w is the probability (0-d) of its path."""
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
    """The path's probability and the distribution after it, once a child drawn from q is rejected with its subtree."""
    rest = (w * p - q).clamp(min=0.0)
    mass = rest.sum()
    room = mass + 1.0 - w
    chance = torch.where(room > 0.0, mass / room, 1.0)
    return chance, torch.where(mass > 0.0, rest / mass, p)
