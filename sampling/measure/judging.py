"""How many drafts of one proposal each exact strategy accepts on average over its coins: strategies compared in place.

All are asked about the same drafts and the same distributions, so that nothing but the strategy differs.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sampling.forward.tree import children
from sampling.proposal import Proposal
from sampling.verify.block import of_chain
from sampling.verify.rejection import residual
from sampling.verify.traversal import without
from sampling.verify.verdict import distribution_of


def from_the_root(proposal: Proposal, p: Tensor) -> float:
    """Of `rejection`: at each node its drafts in order, each against what those before it left. p: `[n + 1, V]`."""
    tree = _Tree(proposal, p)

    def visit(row: int) -> float:
        left, alive, accepted = p[row + 1], 1.0, 0.0
        for child in tree.below[row]:
            q = tree.q(child)
            token = proposal.tokens[child]
            passes = float((left[token] / q[token]).clamp(max=1.0))
            accepted += alive * passes * (1.0 + visit(child))
            alive *= 1.0 - passes
            left = residual(left, q)
        return accepted

    return visit(-1)


def of_a_block(proposal: Proposal, p: Tensor) -> float:
    """Of `block` on a drawn chain: the last draft whose coin falls right."""
    if proposal.parents is not None or proposal.draft_probs is None:
        return from_the_root(proposal, p)
    _, chances = of_chain(proposal, proposal.draft_probs, p)
    failing = (1.0 - chances).flip(0).cumprod(0)
    return float((1.0 - failing).sum())


def from_the_leaves(proposal: Proposal, p: Tensor) -> float:
    """Of `traversal`: the first draft that is kept, everything below a draft before the draft itself."""
    if proposal.draft_probs is None:
        return from_the_root(proposal, p)
    tree = _Tree(proposal, p)

    def visit(row: int, w: Tensor, depth: int) -> tuple[float, float]:
        """Chance that nothing from here on is kept, and accepted drafts."""
        here, nothing, accepted = p[row + 1], 1.0, 0.0
        for child in tree.below[row]:
            q, token = tree.q(child), proposal.tokens[child]
            gone, more = visit(child, (w * here[token] / q[token]).clamp(max=1.0), depth + 1)
            accepted, nothing = accepted + nothing * more, nothing * gone
            w, here = without(w, here, q)
        stays = float(w) if row >= 0 else 1.0
        return nothing * (1.0 - stays), accepted + nothing * stays * depth

    return visit(-1, p.new_ones(()), 0)[1]


EXPECTED: Mapping[str, Callable[[Proposal, Tensor], float]] = {
    "rejection": from_the_root,
    "block": of_a_block,
    "traversal": from_the_leaves,
}
"""By the name of the strategy."""


class _Tree:
    """The drafts below each row, -1 = the text, and what each was drawn from."""

    def __init__(self, proposal: Proposal, p: Tensor) -> None:
        self._proposal, self._like = proposal, p
        self.below = children(proposal.parent_rows)

    def q(self, row: int) -> Tensor:
        """`[V]`."""
        return distribution_of(self._proposal, torch.full((), row, device=self._like.device), self._like)
