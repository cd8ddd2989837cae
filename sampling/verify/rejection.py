"""Speculative sampling: rejection sampling of the drafts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.proposal import Proposal
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import DeviceVerdict
from sampling.verify.verifier import Verifier, coins_each, sample_each
from utils.logits_processor import LogitsProcessor, sample, wide
from utils.numbers.random_numbers import RNG, uniform


class RejectionVerifier(Verifier):
    """Speculative sampling (arXiv 2211.17192, 2302.01318), on a chain or a tree (SpecInfer, 2305.09781).

    The children of a node are tried in order. Child x is accepted with probability min(1, p(x) / q(x)), where q is the
    distribution that it was drawn from. A rejection replaces p by norm(max(p - q, 0)). After the last child the next
    token is drawn from p. Greedy decoding is a one-hot p and no special case.

    A child that is a point mass is accepted with probability p(x). All such children of a node share one uniform
    number, so a whole tree of them is judged at once.
    """

    is_argmax_under_greedy = True

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        if not batch.total:
            return DeviceVerdict(batch.layout.none, sample_each(p, rngs))
        if batch.tree is not None:
            on_tree = self._points if batch.draft_probs is None else self._siblings
            return on_tree(batch, batch.tree, p, rngs[0])
        accepted = batch.accepted(coins_each(batch, rngs) * batch.q < batch.of_drafts(p))
        here = p.index_select(0, batch.layout.roots + accepted)
        rejected = self.rest(here, batch.last_probs(accepted, here))
        here = torch.where((accepted < batch.layout.lengths).unsqueeze(1), rejected, here)
        return DeviceVerdict(accepted - 1, sample_each(here, rngs))

    def rest(self, p: Tensor, q: Tensor) -> Tensor:
        """The residual of a node's distribution `[..., V]` after drafts from `q` were rejected."""
        return residual(p, q)

    def _points(self, batch: ProposalBatch, tree: Proposal, p: Tensor, rng: RNG) -> DeviceVerdict:
        """Judge point masses: one coin per node selects a child with the child's probability, or none."""
        parents = tree.parents_on(p.device)
        p_x = batch.of_drafts(p).to(wide(p.device))
        siblings = (parents.unsqueeze(1) == parents).tril(-1)
        again = (siblings & (tree.tokens.unsqueeze(1) == tree.tokens)).any(1)
        width = p_x.masked_fill(again, 0.0)
        start = (siblings * width).sum(1)
        coins = uniform((len(tree) + 1,), rng, p.device, width.dtype, "coin").index_select(0, parents + 1)
        end = batch.deepest((start <= coins) & (coins < start + width))
        here = p.index_select(0, end + 1)[0]
        tried = torch.zeros_like(here).scatter_reduce_(0, tree.tokens, (parents == end).float(), "amax")
        return DeviceVerdict(end, sample(self.rest(here, tried).unsqueeze(0), rng))

    def _siblings(self, batch: ProposalBatch, tree: Proposal, p: Tensor, rng: RNG) -> DeviceVerdict:
        """Judge draft by draft, parents first. After a rejected child its siblings are judged against the residual.

        end: `[1]`, the draft that was accepted last: its children are judged, and no others. here: `[1, V]`, the
        distribution there. The parents are not read.
        """
        assert tree.draft_probs is not None
        coins = uniform((len(tree),), rng, p.device, torch.float32, "coin")
        parents, end, here = tree.parents_on(p.device), torch.full((1,), -1, device=p.device), p[:1]
        for row in range(len(tree)):
            mine = slice(row, row + 1)
            chance = here.gather(1, tree.tokens[mine].unsqueeze(1)).squeeze(1)
            judged = parents[mine] == end
            accepted = judged & (coins[mine] * batch.q[mine] < chance)
            rest = torch.where(judged.unsqueeze(1), self.rest(here, tree.draft_probs[mine]), here)
            here = torch.where(accepted.unsqueeze(1), p[row + 1 : row + 2], rest)
            end = torch.where(accepted, row, end)
        return DeviceVerdict(end, sample(here, rng))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p - q, 0)), `[..., V]`. If p equals q to rounding, no mass is left and the result is p."""
    rest = (p - q).clamp(min=0.0)
    mass = rest.sum(-1, keepdim=True)
    return torch.where(mass > 0.0, rest / mass, p)
