"""How drafts are judged. The lossless strategies leave the target's output distribution unchanged.

Words: a draft is accepted or rejected; after a rejection the target's own token is the recovered one,
after full acceptance the bonus one. p is the target's distribution, q the drafter's, both processed.

Everything is decided where the distributions lie, and read once: `Verifier.verify` packs what the host has to know.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from egag.entropy import entropy
from sampling.chains import Chains
from sampling.forward.tree import Parents
from sampling.proposal import Proposal
from utils.argmax import argmax
from utils.coins import Coins, Source, uniform
from utils.logits_processor import (
    LogitsProcessor,
    inverted,
    no_distribution,
    one_if_finite,
    sample,
    wide,
)
from utils.sent import moved


@dataclass(frozen=True, slots=True)
class Verdict:
    """Accepted rows in order, and the token that follows them.

    drafts, p, q: of each draft its token, and its probability under the target and the drafter at its place.
    parents: of the drafts of a tree, as in a proposal. entropy: nats, of the drafter's raw distribution for the first
    draft; None where there is none.
    """

    drafts: tuple[int, ...]
    path: tuple[int, ...]
    token: int
    p: tuple[float, ...]
    q: tuple[float, ...]
    entropy: float | None
    parents: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on the device: the row of the last accepted draft (0-d, -1 = none), and the next token `[1]`.

    Of many chains both are `[B]`.
    """

    end: Tensor
    token: Tensor


class Verifier(ABC):
    """Judges a proposal against the target's distributions.

    reads_trees: whether it asks for the shape of a tree on the host, which no graph can do.
    """

    reads_trees = False

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The strategy with the given parameters; it needs no model."""
        return cls(**values)

    @abstractmethod
    def lossless(self, processor: LogitsProcessor) -> bool:
        """Whether the output has the target's own distribution under this processor."""

    @abstractmethod
    def decide(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        """Which of n > 0 drafts are accepted and what follows, from `p` `[n + 1, V]`; nothing is read."""

    def last(self, p: Tensor, coins: Coins) -> Tensor:
        """The next token `[1]` where nothing was drafted, from `p` `[1, V]`."""
        return sample(p, coins)

    def decide_many(self, chains: Chains, p: Tensor, coins: Sequence[Source]) -> Decision | None:
        """`decide`, and `last`, of many chains at once: rows `[B]` and tokens `[B]`; None: it judges them one by one.

        p: `[n + B, V]`, see `Chains`. coins: of each sequence. A class that has a `decide` of its own is asked that.
        """
        return None

    def verify(self, proposal: Proposal, p: Tensor, coins: Source) -> Verdict:
        """The verdict from `p` `[n + 1, V]` float32: row 0 at the root, row i + 1 after draft i.

        Raises `UserError` where a distribution that it rests on, or that a draft was taken from, is none.
        """
        return told(proposal, self.packet(proposal, p, coins).tolist())

    def packet(self, proposal: Proposal, p: Tensor, coins: Coins) -> Tensor:
        """What `verify` reads, in one tensor: see `packet`."""
        if not len(proposal):
            return packet_of_none(p, self.last(p, coins))
        return packet(proposal, p, self.decide(proposal, p, coins))


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

    def decide(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        if proposal.parents is None:
            return self._chain(proposal, p, coins)
        return self._points(proposal, p, coins) if proposal.probs is None else self._siblings(proposal, p, coins)

    def decide_many(self, chains: Chains, p: Tensor, coins: Sequence[Source]) -> Decision | None:
        p_x = p[chains.rows, chains.tokens]
        fallen = coins_each((count, one) for count, one in zip(chains.counts, coins, strict=True) if count)
        accepted = chains.accepted(moved(fallen, p.device) * chains.q < p_x)
        here = p.index_select(0, chains.roots + accepted)
        if len(p_x):
            rejected = self.rest(here, chains.of_last(accepted, here))
            here = torch.where((accepted < chains.lengths).unsqueeze(1), rejected, here)
        return Decision(accepted - 1, sample_each(here, coins))

    def rest(self, p: Tensor, q: Tensor) -> Tensor:
        """What is left of a node's distribution `[..., V]` when drafts from `q` were rejected."""
        return residual(p, q)

    def _chain(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        """The drafts up to the first whose coin fails; behind it the residual, behind all of them p."""
        count = len(proposal)
        p_x, q_x = of_drafts(proposal, p)
        fallen = uniform((count,), coins, p.device, torch.float32, "coin")
        accepted = (fallen * q_x < p_x).long().cumprod(0).sum()
        here = p.index_select(0, accepted.view(1))[0]
        rejected = self.rest(here, distribution_of(proposal, accepted.clamp(max=count - 1), p))
        return Decision(accepted - 1, sample(torch.where(accepted < count, rejected, here).unsqueeze(0), coins))

    def _points(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        """A coin a node falls on one of its children, each as wide as its probability, or beside them all."""
        parents = proposal.parents_on(p.device)
        p_x = of_drafts(proposal, p)[0].to(wide(p.device))
        siblings = (parents.unsqueeze(1) == parents).tril(-1)
        again = (siblings & (proposal.tokens.unsqueeze(1) == proposal.tokens)).any(1)
        width = p_x.masked_fill(again, 0.0)
        start = (siblings * width).sum(1)
        fallen = uniform((len(proposal) + 1,), coins, p.device, width.dtype, "coin").index_select(0, parents + 1)
        end = deepest(proposal, (start <= fallen) & (fallen < start + width))
        here = p.index_select(0, end.view(1) + 1)[0]
        tried = torch.zeros_like(here).scatter_reduce_(0, proposal.tokens, (parents == end).float(), "amax")
        return Decision(end, sample(self.rest(here, tried).unsqueeze(0), coins))

    def _siblings(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        """Draft by draft, parents first: where a drawn child was rejected, its siblings meet what is left."""
        _, q_x = of_drafts(proposal, p)
        fallen = uniform((len(proposal),), coins, p.device, torch.float32, "coin")
        yes, rows = torch.ones((), dtype=torch.bool, device=p.device), torch.arange(len(proposal), device=p.device)
        left, alive, end = {-1: p[0]}, {-1: yes}, torch.full((), -1, device=p.device)
        for row, parent in enumerate(proposal.parent_rows):
            accepted = alive[parent] & (fallen[row] * q_x[row] < left[parent][proposal.tokens[row]])
            rejected = alive[parent] & ~accepted
            left[parent] = torch.where(
                rejected, self.rest(left[parent], distribution_of(proposal, rows[row], p)), left[parent]
            )
            alive[parent], alive[row], left[row] = rejected, accepted, p[row + 1]
            end = torch.where(accepted, row, end)
        ends = torch.stack([left[row] for row in range(-1, len(proposal))])
        return Decision(end, sample(ends.index_select(0, end.view(1) + 1), coins))


class TargetMatchVerifier(Verifier):
    """Draw the token from p at each node; a draft is accepted when it is that token. Lossless.

    It accepts sum p(x) q(x) of the drafts where rejection sampling accepts sum min(p(x), q(x)).
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        return _follow(proposal, sample(p, coins))

    def decide_many(self, chains: Chains, p: Tensor, coins: Sequence[Source]) -> Decision | None:
        rows = [one for count, one in zip(chains.counts, coins, strict=True) for _ in range(count + 1)]
        return follow_many(chains, sample_each(p, rows))


class GreedyVerifier(Verifier):
    """A draft is accepted when it is the argmax of p, and so is the next token: lossless under greedy only."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def decide(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        return _follow(proposal, argmax(p))

    def last(self, p: Tensor, coins: Coins) -> Tensor:
        return argmax(p)

    def decide_many(self, chains: Chains, p: Tensor, coins: Sequence[Source]) -> Decision | None:
        return follow_many(chains, argmax(p))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p - q, 0)), `[..., V]`; where p equals q to rounding no mass is left, and p itself is returned."""
    rest = (p - q).clamp(min=0.0)
    mass = rest.sum(-1, keepdim=True)
    return torch.where(mass > 0.0, rest / mass, p)


def deepest(proposal: Proposal, passed: Tensor) -> Tensor:
    """Row (0-d) of the deepest draft that `passed` `[n]` with all its ancestors, the first of equals; -1 = none."""
    if proposal.parents is None:
        return passed.long().cumprod(0).sum() - 1
    count, above = len(proposal), proposal.seen_on(passed.device)
    reached = (passed | ~above).all(1)
    rank = reached * (above.sum(1) * count + torch.arange(count, 0, -1, device=passed.device))
    return torch.where(reached.any(), rank.argmax(), -1)


def follow_many(chains: Chains, wanted: Tensor) -> Decision:
    """Go along each chain while the target's choices `[n + B]` are its drafts."""
    accepted = chains.accepted(wanted.index_select(0, chains.rows) == chains.tokens)
    return Decision(accepted - 1, wanted.index_select(0, chains.roots + accepted))


def sample_each(p: Tensor, coins: Sequence[Source]) -> Tensor:
    """A token of each row `[B, V]`, by the numbers of its own sequence."""
    there = torch.device("cpu")
    coin = torch.cat([uniform((1, 1), one, there, wide(p.device), "token") for one in coins])
    return inverted(p, moved(coin, p.device))


def coins_each(asked: Iterable[tuple[int, Source]]) -> Tensor:
    """Coins of several sequences `[n]`, on the CPU; so many of each."""
    there = torch.device("cpu")
    drawn = [uniform((count,), one, there, torch.float32, "coin") for count, one in asked]
    return torch.cat(drawn) if drawn else torch.empty(0)


def _follow(proposal: Proposal, wanted: Tensor) -> Decision:
    """Walk down while the target's choice `[n + 1]` at a node is one of its children."""
    rows = judging_rows(proposal, wanted.device)
    end = deepest(proposal, wanted[rows] == proposal.tokens)
    return Decision(end, wanted.index_select(0, end.view(1) + 1))


def distribution_of(proposal: Proposal, row: Tensor, p: Tensor) -> Tensor:
    """q of the draft in a row (0-d), `[V]`: the distribution it was drawn from, one-hot for a point mass."""
    if proposal.probs is not None:
        return proposal.probs.index_select(0, row.view(1))[0]
    return torch.zeros_like(p[0]).scatter_(0, proposal.tokens.index_select(0, row.view(1)), 1.0)


def judging_rows(proposal: Proposal, device: torch.device) -> Tensor:
    """The row of p that judges each draft, `[n]`: its parent's."""
    return proposal.parents_on(device) + 1


def of_drafts(proposal: Proposal, p: Tensor) -> tuple[Tensor, Tensor]:
    """(p, q) of each draft at its place, `[n]`."""
    p_x = p[judging_rows(proposal, p.device), proposal.tokens]
    return p_x, _q_of_drafts(proposal, p_x)


def _q_of_drafts(proposal: Proposal, like: Tensor) -> Tensor:
    """q of each draft, `[n]`; where it is certain, ones as numerous as `like`."""
    if proposal.probs is not None:
        return proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1)
    return torch.ones_like(like) if proposal.chances is None else proposal.chances


def told(proposal: Proposal, numbers: Sequence[float]) -> Verdict:
    """The verdict that a packet holds, once it was read.

    Raises `UserError` where a distribution that it rests on, or that a draft was taken from, is none.
    """
    count = len(proposal)
    end, token, chance, nats, *rows = numbers
    drafts, p_x, q_x, above = (rows[count * part : count * (part + 1)] for part in range(4))
    parents = None if proposal.parents is None else tuple(map(int, above)) or tuple(proposal.parents)
    path = _path(range(-1, count - 1) if parents is None else parents, int(end))
    if not chance > 0.0 or any(math.isnan(p_x[row]) for row in path):
        raise no_distribution("model")
    if any(math.isnan(q) for q in q_x):
        raise no_distribution("drafter")
    return Verdict(
        drafts=tuple(map(int, drafts)),
        path=path,
        token=int(token),
        p=tuple(p_x),
        q=tuple(q_x),
        entropy=None if proposal.first is None else nats,
        parents=parents,
    )


def packet(proposal: Proposal, p: Tensor, decision: Decision) -> Tensor:
    """All that the host has to know of a round, in one tensor: where the path ends, the next token and its chance.

    Then the entropy, NaN where there is none, and of each draft its token, p, q and, where the tree was grown on the
    device, its parent.
    """
    chosen = p.index_select(0, decision.end.view(1) + 1)[0].gather(0, decision.token)
    return _packed(proposal, decision, chosen, *of_drafts(proposal, p))


def _packed(proposal: Proposal, decision: Decision, chosen: Tensor, p_x: Tensor, q_x: Tensor) -> Tensor:
    """See `packet`. chosen: `[1]`, the chance of the next token."""
    surprise = (
        p_x.new_full((1,), torch.nan) if proposal.first is None else entropy(proposal.first).to(p_x.device).view(1)
    )
    there = proposal.parents.there if isinstance(proposal.parents, Parents) else p_x.new_empty(0)
    parts = (decision.end.view(1), decision.token, chosen, surprise, proposal.tokens, p_x, q_x, there)
    return torch.cat([part.to(wide(p_x.device)) for part in parts])


def packet_of_best(proposal: Proposal, logits: Tensor) -> Tensor:
    """The packet of greedy decoding from raw logits `[n + 1, V]`: that of p being one-hot, which is not written out."""
    best, sure = best_of(logits)
    if not len(proposal):
        return _packet_of_none(best, sure)
    decision = _follow(proposal, best)
    rows = judging_rows(proposal, best.device)
    p_x = sure.index_select(0, rows) - (best.index_select(0, rows) != proposal.tokens).float()
    return _packed(proposal, decision, sure.index_select(0, decision.end.view(1) + 1), p_x, _q_of_drafts(proposal, p_x))


def packets_of_chains(chains: Chains, decision: Decision, chosen: Tensor, p_x: Tensor) -> list[Tensor]:
    """What `packet` packs, of many chains, read together: `[4, B]` of heads, then three times `[n]` of drafts.

    See `told_of_chains`. chosen: `[B]`, chances of the next tokens.
    """
    parts = (decision.end, decision.token, chosen, chains.surprises, chains.tokens, p_x, chains.q)
    return [part.to(wide(chains.device)) for part in parts]


def told_of_chains(chains: Chains, numbers: Sequence[float]) -> list[Verdict]:
    """The verdicts that such packets hold, once they were read. Raises `UserError` as `told` does."""
    size, drafts = len(chains.counts), sum(chains.counts)
    heads = [numbers[part * size : (part + 1) * size] for part in range(4)]
    rows = [numbers[4 * size + part * drafts : 4 * size + (part + 1) * drafts] for part in range(3)]
    verdicts, start = list[Verdict](), 0
    for proposal, count, *head in zip(chains.proposals, chains.counts, *heads, strict=True):
        own = [number for part in rows for number in part[start : start + count]]
        verdicts.append(told(proposal, [*head, *own]))
        start += count
    return verdicts


def best_of(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The best token of each row, and 1 for it; NaN where the row is no distribution."""
    best = argmax(logits)
    return best, one_if_finite(logits.gather(-1, best.unsqueeze(-1)).squeeze(-1))


def packet_of_none(p: Tensor, token: Tensor) -> Tensor:
    """The same where nothing was drafted, from `p` `[1, V]` and the next token `[1]`."""
    return _packet_of_none(token, p[0].gather(0, token))


def _packet_of_none(token: Tensor, chance: Tensor) -> Tensor:
    exact = wide(token.device)
    nothing = torch.full((1,), torch.nan, dtype=exact, device=token.device)
    return torch.cat([nothing.nan_to_num(nan=-1.0), token.to(exact), chance.to(exact), nothing])


def _path(parents: Sequence[int], end: int) -> tuple[int, ...]:
    """The rows that lead to a row, itself the last; none for -1."""
    path = list[int]()
    while end >= 0:
        path.append(end)
        end = parents[end]
    return tuple(reversed(path))
