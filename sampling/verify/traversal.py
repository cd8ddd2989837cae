"""Traversal verification: a tree of drawn drafts is judged from its leaves upwards."""

import torch
from torch import Tensor

from sampling.proposal import Proposal
from sampling.verify.block import BlockVerifier
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import DeviceVerdict
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
        coins = uniform((len(tree),), rng, p.device, torch.float32, "coin")
        w, left = _rejected(tree, p)
        passed = coins < w[1:]
        first = torch.where(passed, _turns(tree, p.device), len(tree)).argmin(0, keepdim=True)
        end = torch.where(passed.any(), first, -1)
        return DeviceVerdict(end, sample(left.index_select(0, end + 1), rng))


def _rejected(tree: Proposal, p: Tensor) -> tuple[Tensor, Tensor]:
    """The probability `[n + 1]` of the root's and each draft's path, and the distribution `[n + 1, V]` after it, once
    all its children are rejected.

    A child takes its path's probability from what the siblings before it left; what lies below it changes neither.
    """
    assert tree.draft_probs is not None
    w, left = p.new_ones(len(tree) + 1), p.clone()
    for row, parent in enumerate((tree.parents_on(p.device) + 1).split(1)):
        path, here, q = w.index_select(0, parent), left.index_select(0, parent), tree.draft_probs[row : row + 1]
        token = tree.tokens[row : row + 1].unsqueeze(1)
        w[row + 1 : row + 2] = (path * here.gather(1, token)[0] / q.gather(1, token)[0]).clamp(max=1.0)
        chance, rest = without(path, here, q)
        w.index_copy_(0, parent, chance)
        left.index_copy_(0, parent, rest)
    return w, left


def _turns(tree: Proposal, device: torch.device) -> Tensor:
    """When each draft is judged, `[n]` from 0: behind all below it, and behind its earlier siblings with theirs."""
    seen, parents = tree.seen_on(device).long(), tree.parents_on(device)
    below = seen.sum(0)
    earlier = ((parents.unsqueeze(1) == parents).tril(-1) * below).sum(1)
    return (seen * earlier).sum(1) + below - 1


def without(w: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The path's probability and the distribution after it, once a child drawn from q is rejected with its subtree.

    w: `[...]`. p, q: `[..., V]`.
    """
    rest = (w.unsqueeze(-1) * p - q).clamp(min=0.0)
    mass = rest.sum(-1)
    room = mass + 1.0 - w
    chance, held = torch.where(room > 0.0, mass / room, 1.0), mass.unsqueeze(-1)
    return chance, torch.where(held > 0.0, rest / held, p)
