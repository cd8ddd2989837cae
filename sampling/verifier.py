"""How drafts are judged. The lossless strategies leave the target's output law unchanged.

Words: a draft is accepted or rejected; after a rejection the target's own token is the recovered one,
after full acceptance the bonus one. p is the target's distribution, q the drafter's, both processed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sampling.forward.tree import children
from sampling.proposal import Proposal
from utils.logits_processor import LogitsProcessor, sample


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted rows in order, the token that follows them, how many drafts were judged.

    p, q: probability of each draft under the target and the drafter at its place, one entry a draft.
    """

    path: tuple[int, ...]
    token: int
    tested: int
    p: tuple[float, ...]
    q: tuple[float, ...]


class Verifier(ABC):
    """Judges a proposal against the target's distributions."""

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        """The strategy with the given parameters; it needs no model."""
        return cls(**values)

    @abstractmethod
    def lossless(self, processor: LogitsProcessor) -> bool:
        """Whether the output has the target's own law under this processor."""

    @abstractmethod
    def verify(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Verdict:
        """The verdict from `p` `[n + 1, V]` float32: row 0 at the root, row i + 1 after draft i."""


class RejectionVerifier(Verifier):
    """Speculative sampling (arXiv 2211.17192, 2302.01318), on a chain or a tree (SpecInfer, 2305.09781).

    At a node the children are tried in order: x is accepted with probability min(1, p(x) / q(x)); on a
    rejection p becomes norm(max(p - q, 0)), with q the law that this child was drawn from. With no child
    left, the next token is drawn from p. A chain has one child a node, a point mass a one-hot q, and
    greedy a one-hot p: none of them is a special case.
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def verify(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Verdict:
        drafts = read_drafts(proposal, p, rng)
        below = children(proposal.parent_rows)
        path: list[int] = []
        node, tested, law = -1, 0, p[0]
        while node in below:
            first = tested
            for row in below[node]:
                p_x = drafts.p[row] if tested == first else law[drafts.tokens[row]].item()
                tested += 1
                if drafts.coins[row] * drafts.q[row] < p_x:
                    path.append(row)
                    node, law = row, p[row + 1]
                    break
                law = self.rest(law, _law_of(proposal, row, p))
            else:
                break
        return Verdict(tuple(path), int(sample(law.unsqueeze(0), rng)), tested, drafts.p, drafts.q)

    def rest(self, law: Tensor, q: Tensor) -> Tensor:
        """What is left of a node's law `[V]` when a draft from `q` was rejected."""
        return residual(law, q)


class TargetMatchVerifier(Verifier):
    """Draw the token from p at each node; a draft is accepted when it is that token. Lossless.

    It accepts sum p(x) q(x) of the drafts where rejection sampling accepts sum min(p(x), q(x)).
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def verify(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Verdict:
        return _follow(proposal, p, sample(p, rng), rng)


class GreedyVerifier(Verifier):
    """A draft is accepted when it is the argmax of p, and so is the next token: lossless under greedy only."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def verify(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Verdict:
        return _follow(proposal, p, p.argmax(dim=-1), rng)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p - q, 0)), `[V]`; where p equals q to rounding no mass is left, and p itself is returned."""
    rest = (p - q).clamp(min=0.0)
    mass = rest.sum()
    return torch.where(mass > 0.0, rest / mass, p)


def _law_of(proposal: Proposal, row: int, p: Tensor) -> Tensor:
    """q of a draft, `[V]`: the distribution it was drawn from, one-hot for a point mass."""
    if proposal.probs is not None:
        return proposal.probs[row]
    return torch.zeros_like(p[0]).scatter_(0, proposal.tokens[row : row + 1], 1.0)


@dataclass(frozen=True, slots=True)
class Drafts:
    """One entry a draft, on the host: its token, p and q at its place, and a uniform number."""

    tokens: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    coins: tuple[float, ...]


def read_drafts(proposal: Proposal, p: Tensor, rng: torch.Generator) -> Drafts:
    """All that judging needs of the drafts, in one transfer from the device."""
    if not len(proposal):
        return Drafts((), (), (), ())
    rows = torch.tensor(proposal.parent_rows, device=p.device) + 1
    index = proposal.tokens.unsqueeze(-1)
    p_draft = p[rows].gather(-1, index).squeeze(-1)
    q_draft = torch.ones_like(p_draft) if proposal.probs is None else proposal.probs.gather(-1, index).squeeze(-1)
    coins = torch.rand(len(proposal), generator=rng, device=p.device)
    table = torch.stack([proposal.tokens.double(), p_draft.double(), q_draft.double(), coins.double()]).tolist()
    return Drafts(tuple(int(token) for token in table[0]), *(tuple(column) for column in table[1:]))


def _follow(proposal: Proposal, p: Tensor, choice: Tensor, rng: torch.Generator) -> Verdict:
    """Walk down while the target's choice `[n + 1]` at a node is one of its children."""
    drafts = read_drafts(proposal, p, rng)
    wanted = choice.tolist()
    below = children(proposal.parent_rows)
    path: list[int] = []
    node, tested = -1, 0
    while rows := below.get(node):
        match = next((row for row in rows if drafts.tokens[row] == wanted[node + 1]), None)
        tested += len(rows) if match is None else rows.index(match) + 1
        if match is None:
            break
        path.append(match)
        node = match
    return Verdict(tuple(path), wanted[node + 1], tested, drafts.p, drafts.q)
