"""How drafts are judged. The lossless strategies leave the target's output distribution unchanged.

Words: a draft is accepted or rejected; after a rejection the target's own token is the recovered one,
after full acceptance the bonus one. p is the target's distribution, q the drafter's, both processed.

Everything is decided where the distributions lie, and read once: `Verifier.verify` packs what the host has to know.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from egag.entropy import entropy
from sampling.forward.tree import ancestor_mask
from sampling.proposal import Proposal
from utils.logits_processor import LogitsProcessor, no_distribution, sample
from utils.sent import moved, sent


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted rows in order, and the token that follows them.

    drafts, p, q: of each draft its token, and its probability under the target and the drafter at its place.
    entropy: nats, of the drafter's raw distribution for the first draft; None where there is none.
    """

    drafts: tuple[int, ...]
    path: tuple[int, ...]
    token: int
    p: tuple[float, ...]
    q: tuple[float, ...]
    entropy: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on the device: the row of the last accepted draft (0-d, -1 = none), and the next token `[1]`."""

    end: Tensor
    token: Tensor


class Verifier(ABC):
    """Judges a proposal against the target's distributions."""

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        """The strategy with the given parameters; it needs no model."""
        return cls(**values)

    @abstractmethod
    def lossless(self, processor: LogitsProcessor) -> bool:
        """Whether the output has the target's own distribution under this processor."""

    @abstractmethod
    def decide(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        """Which of n > 0 drafts are accepted and what follows, from `p` `[n + 1, V]`; nothing is read."""

    def last(self, p: Tensor, rng: torch.Generator) -> Tensor:
        """The next token `[1]` where nothing was drafted, from `p` `[1, V]`."""
        return sample(p, rng)

    def verify(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Verdict:
        """The verdict from `p` `[n + 1, V]` float32: row 0 at the root, row i + 1 after draft i.

        Raises `UserError` where a distribution that it rests on, or that a draft was taken from, is none.
        """
        if not len(proposal):
            return Verdict((), (), _token(p, self.last(p, rng)), (), (), None)
        return _read(proposal, p, self.decide(proposal, p, rng))


class RejectionVerifier(Verifier):
    """Speculative sampling (arXiv 2211.17192, 2302.01318), on a chain or a tree (SpecInfer, 2305.09781).

    At a node the children are tried in order: x is accepted with probability min(1, p(x) / q(x)); on a
    rejection p becomes norm(max(p - q, 0)), with q the distribution that this child was drawn from. With no child
    left, the next token is drawn from p. Greedy is a one-hot p and no special case.

    Children that are point masses are accepted with probability p(x) each, all together at the price of one
    uniform number: so a whole tree of them is judged at once.
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        if proposal.parents is None:
            return self._chain(proposal, p, rng)
        return self._points(proposal, p, rng) if proposal.probs is None else self._siblings(proposal, p, rng)

    def rest(self, p: Tensor, q: Tensor) -> Tensor:
        """What is left of a node's distribution `[V]` when drafts from `q` were rejected."""
        return residual(p, q)

    def _chain(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        """The drafts up to the first whose coin fails; behind it the residual, behind all of them p."""
        count = len(proposal)
        p_x, q_x = _of_drafts(proposal, p)
        coins = torch.rand(count, generator=rng, device=p.device)
        accepted = (coins * q_x < p_x).long().cumprod(0).sum()
        here = p.index_select(0, accepted.view(1))[0]
        rejected = self.rest(here, _distribution_of(proposal, accepted.clamp(max=count - 1), p))
        return Decision(accepted - 1, sample(torch.where(accepted < count, rejected, here).unsqueeze(0), rng))

    def _points(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        """A coin a node falls on one of its children, each as wide as its probability, or beside them all."""
        parents = sent(proposal.parent_rows, p.device)
        p_x = _of_drafts(proposal, p)[0].to(_exact(p.device))
        siblings = (parents.unsqueeze(1) == parents).tril(-1)
        again = (siblings & (proposal.tokens.unsqueeze(1) == proposal.tokens)).any(1)
        width = p_x.masked_fill(again, 0.0)
        start = (siblings * width).sum(1)
        coins = torch.rand(len(proposal) + 1, generator=rng, device=p.device, dtype=width.dtype)[parents + 1]
        end = deepest(proposal, (start <= coins) & (coins < start + width))
        here = p.index_select(0, end.view(1) + 1)[0]
        tried = torch.zeros_like(here).scatter_reduce_(0, proposal.tokens, (parents == end).float(), "amax")
        return Decision(end, sample(self.rest(here, tried).unsqueeze(0), rng))

    def _siblings(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        """Draft by draft, parents first: where a drawn child was rejected, its siblings meet what is left."""
        _, q_x = _of_drafts(proposal, p)
        coins = torch.rand(len(proposal), generator=rng, device=p.device)
        yes = torch.ones((), dtype=torch.bool, device=p.device)
        left, alive, end = {-1: p[0]}, {-1: yes}, torch.full((), -1, device=p.device)
        for row, parent in enumerate(proposal.parent_rows):
            accepted = alive[parent] & (coins[row] * q_x[row] < left[parent][proposal.tokens[row]])
            rejected = alive[parent] & ~accepted
            left[parent] = torch.where(
                rejected, self.rest(left[parent], _distribution_of(proposal, row, p)), left[parent]
            )
            alive[parent], alive[row], left[row] = rejected, accepted, p[row + 1]
            end = torch.where(accepted, row, end)
        ends = torch.stack([left[row] for row in range(-1, len(proposal))])
        return Decision(end, sample(ends.index_select(0, end.view(1) + 1), rng))


class TargetMatchVerifier(Verifier):
    """Draw the token from p at each node; a draft is accepted when it is that token. Lossless.

    It accepts sum p(x) q(x) of the drafts where rejection sampling accepts sum min(p(x), q(x)).
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        return _follow(proposal, sample(p, rng))


class GreedyVerifier(Verifier):
    """A draft is accepted when it is the argmax of p, and so is the next token: lossless under greedy only."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def decide(self, proposal: Proposal, p: Tensor, rng: torch.Generator) -> Decision:
        return _follow(proposal, p.argmax(dim=-1))

    def last(self, p: Tensor, rng: torch.Generator) -> Tensor:
        return p.argmax(dim=-1)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p - q, 0)), `[V]`; where p equals q to rounding no mass is left, and p itself is returned."""
    rest = (p - q).clamp(min=0.0)
    mass = rest.sum()
    return torch.where(mass > 0.0, rest / mass, p)


def deepest(proposal: Proposal, passed: Tensor) -> Tensor:
    """Row (0-d) of the deepest draft that `passed` `[n]` with all its ancestors, the first of equals; -1 = none."""
    count = len(proposal)
    above = moved(ancestor_mask(proposal.parent_rows)[1:, 1:], passed.device)
    reached = (passed | ~above).all(1)
    rank = reached * (above.sum(1) * count + torch.arange(count, 0, -1, device=passed.device))
    return torch.where(reached.any(), rank.argmax(), -1)


def _follow(proposal: Proposal, wanted: Tensor) -> Decision:
    """Walk down while the target's choice `[n + 1]` at a node is one of its children."""
    rows = judging_rows(proposal, wanted.device)
    end = deepest(proposal, wanted[rows] == proposal.tokens)
    return Decision(end, wanted.index_select(0, end.view(1) + 1))


def _distribution_of(proposal: Proposal, row: Tensor | int, p: Tensor) -> Tensor:
    """q of a draft, `[V]`: the distribution it was drawn from, one-hot for a point mass."""
    if proposal.probs is not None:
        return proposal.probs[row]
    return torch.zeros_like(p[0]).scatter_(0, proposal.tokens[row].view(1), 1.0)


def judging_rows(proposal: Proposal, device: torch.device) -> Tensor:
    """The row of p that judges each draft, `[n]`: its parent's."""
    if proposal.parents is None:
        return torch.arange(len(proposal), device=device)
    return sent(proposal.parents, device) + 1


def _of_drafts(proposal: Proposal, p: Tensor) -> tuple[Tensor, Tensor]:
    """(p, q) of each draft at its place, `[n]`."""
    p_x = p[judging_rows(proposal, p.device), proposal.tokens]
    if proposal.probs is None:
        return p_x, torch.ones_like(p_x) if proposal.chances is None else proposal.chances
    return p_x, proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1)


def _exact(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _read(proposal: Proposal, p: Tensor, decision: Decision) -> Verdict:
    """One packet, read once: where the path ends, the next token and its chance, the entropy, then tokens, p and q."""
    count, wide = len(proposal), _exact(p.device)
    surprise = p.new_full((1,), torch.nan) if proposal.first is None else entropy(proposal.first).to(p.device).view(1)
    chosen = p[decision.end + 1, decision.token]
    parts = (decision.end.view(1), decision.token, chosen, surprise, proposal.tokens, *_of_drafts(proposal, p))
    end, token, chance, nats, *rows = torch.cat([part.to(wide) for part in parts]).tolist()
    path = _path(proposal, int(end))
    if not chance > 0.0 or any(math.isnan(rows[count + row]) for row in path):
        raise no_distribution("model")
    if any(math.isnan(q) for q in rows[2 * count :]):
        raise no_distribution("drafter")
    return Verdict(
        drafts=tuple(int(draft) for draft in rows[:count]),
        path=path,
        token=int(token),
        p=tuple(rows[count : 2 * count]),
        q=tuple(rows[2 * count :]),
        entropy=None if proposal.first is None else nats,
    )


def _token(p: Tensor, token: Tensor) -> int:
    """The next token where nothing was drafted, read together with its probability."""
    chosen, chance = torch.cat([token.to(_exact(p.device)), p[0, token].to(_exact(p.device))]).tolist()
    if not chance > 0.0:
        raise no_distribution("model")
    return int(chosen)


def _path(proposal: Proposal, end: int) -> tuple[int, ...]:
    """The rows that lead to a row, itself the last; none for -1."""
    parents, path = proposal.parent_rows, []
    while end >= 0:
        path.append(end)
        end = parents[end]
    return tuple(reversed(path))
