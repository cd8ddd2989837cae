"""Proposals of many sequences in one batch: operations on all of them give the same verdicts as one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from sampling.proposal import Proposal
from utils.device.sent import kept, moved, sent


@dataclass(frozen=True, slots=True)
class _Layout:
    """The row numbers of B chains with n drafts in total.

    Per chain, `[B]`: its root's row of p and the row after it, its first and last draft, its number of drafts, and -1.
    Per draft, `[n]`: the row of p that judges it, its position in its chain from 1, the length of that chain, and its
    index in a padded `[B, longest]` tensor.
    """

    roots: Tensor
    behind_roots: Tensor
    firsts: Tensor
    lasts: Tensor
    lengths: Tensor
    none: Tensor
    rows: Tensor
    depths: Tensor
    depth_of_last: Tensor
    padded: Tensor

    @classmethod
    def of(cls, counts: Sequence[int], device: torch.device) -> "_Layout":
        """The layout of chains with these numbers of drafts, sent to the device in one transfer."""
        lengths, number = np.asarray(counts), np.arange(len(counts))
        starts = lengths.cumsum() - lengths
        roots, of = starts + number, number.repeat(lengths)
        row = np.arange(len(of)) - starts[of]
        parts = [
            roots,
            roots + 1,
            starts,
            (starts + lengths - 1).clip(0),
            lengths,
            np.full_like(lengths, -1),
            roots[of] + row,
            row + 1,
            lengths[of],
            of * lengths.max() + row,
        ]
        there = moved(torch.tensor(np.concatenate(parts)), device)
        return cls(*there.split([len(part) for part in parts]))


@cache
def _layout_of_one(count: int, device: torch.device) -> _Layout:
    """The layout of a single chain, cached: a GPU graph must not send anything."""
    return _Layout.of([count], device)


@dataclass(frozen=True)
class ProposalBatch:
    """Proposals of B sequences: either chains, all drawn or all point masses, or a single tree.

    Rows are concatenated: n + 1 rows of p, the root first, and n rows of drafts for a sequence with n drafts.
    """

    proposals: Sequence[Proposal]
    device: torch.device

    @property
    def tree(self) -> Proposal | None:
        """The tree; None for chains. A proposal without drafts counts as a chain."""
        return self.proposals[0] if self.total and self.proposals[0].parents is not None else None

    @cached_property
    def counts(self) -> list[int]:
        """The number of drafts of each sequence."""
        return [len(proposal) for proposal in self.proposals]

    @cached_property
    def total(self) -> int:
        """The number of drafts of all sequences, n."""
        return sum(self.counts)

    @cached_property
    def tokens(self) -> Tensor:
        """All drafts `[n]`."""
        proposals = self.proposals
        return proposals[0].tokens if len(proposals) == 1 else torch.cat([proposal.tokens for proposal in proposals])

    @cached_property
    def draft_probs(self) -> Tensor | None:
        """The distributions that the drafts were drawn from, `[n, V]`; None if all drafts are point masses."""
        parts = [proposal.draft_probs for proposal in self.proposals if proposal.draft_probs is not None]
        return None if not parts else parts[0] if len(parts) == 1 else torch.cat(parts)

    @cached_property
    def q(self) -> Tensor:
        """q of each draft, `[n]`."""
        if self.draft_probs is not None:
            return self.draft_probs.gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)
        if len(self.proposals) == 1 and (chances := self.proposals[0].point_mass_check) is not None:
            return chances
        if all(proposal.point_mass_check is None for proposal in self.proposals):
            return torch.ones(self.total, device=self.device)
        parts = torch.ones(self.total, device=self.device).split(self.counts)
        each = zip(parts, self.proposals, strict=True)
        return torch.cat(
            [ones if proposal.point_mass_check is None else proposal.point_mass_check for ones, proposal in each]
        )

    @cached_property
    def entropies(self) -> Tensor:
        """The entropy of each first draft, `[B]`, nats; NaN where none is known."""
        firsts = [proposal.first_entropy for proposal in self.proposals if proposal.first_entropy is not None]
        if not firsts:
            return kept((torch.nan,) * len(self.proposals), torch.float32, self.device)
        if len(self.proposals) == 1:
            return firsts[0].to(self.device).view(1)
        known = torch.stack(firsts).to(self.device)
        if len(firsts) == len(self.proposals):
            return known
        places = [i for i, proposal in enumerate(self.proposals) if proposal.first_entropy is not None]
        unknown = torch.full((len(self.proposals),), torch.nan, device=self.device, dtype=known.dtype)
        return unknown.index_copy_(0, sent(places, self.device), known)

    @cached_property
    def layout(self) -> _Layout:
        """The row numbers. A tree has its own `rows`, and its root has the number of a chain's root."""
        counts = self.counts
        return _layout_of_one(counts[0], self.device) if len(counts) == 1 else _Layout.of(counts, self.device)

    @cached_property
    def rows(self) -> Tensor:
        """The row of p that judges each draft, `[n]`: its parent's."""
        return self.layout.rows if self.tree is None else self.tree.parents_on(self.device) + 1

    def behind(self, end: Tensor) -> Tensor:
        """The row of p after each sequence's last accepted draft, `[B]`.

        end: `[B]`, the number of that draft, -1 = none.
        """
        return self.layout.behind_roots + end if self.total else self.layout.roots

    def of_drafts(self, values: Tensor) -> Tensor:
        """The values of p, or of another tensor `[n + B, V]`, at each draft's row and token, `[n]`."""
        return values[self.rows, self.tokens] if self.total else values.new_empty(0)

    def of_next(self, p: Tensor, end: Tensor, token: Tensor) -> Tensor:
        """p of the next tokens `[B]`, each after its sequence's last accepted draft."""
        return p[self.behind(end), token] if self.total else p.gather(1, token.unsqueeze(1)).squeeze(1)

    def deepest(self, passed: Tensor) -> Tensor:
        """The deepest draft with all ancestors passed, the first on a tie, `[B]`; -1 = none. passed: `[n]` bool."""
        if not self.total:
            return self.layout.none
        if self.tree is None:
            return self.accepted(passed) - 1
        above = self.tree.seen_on(passed.device)
        reached = (passed | ~above).all(1)
        rank = reached * (above.sum(1) * self.total + torch.arange(self.total, 0, -1, device=passed.device))
        return torch.where(reached.any(), rank.argmax(), -1).view(1)

    def accepted(self, passed: Tensor) -> Tensor:
        """The number of drafts of each chain before the first that does not pass, `[B]`; passed: `[n]` bool."""
        return self.padded(passed).cumprod(1).sum(1)

    def last_probs(self, accepted: Tensor, like: Tensor) -> Tensor:
        """q of each sequence's first rejected draft, or of its last draft, `[B, V]`; one-hot for a point mass."""
        at = torch.minimum(self.layout.firsts + accepted, self.layout.lasts)
        if self.draft_probs is not None:
            return self.draft_probs.index_select(0, at)
        return torch.zeros_like(like).scatter_(1, self.tokens.index_select(0, at).unsqueeze(1), 1.0)

    def padded(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Values of the drafts, `[n]`, as one row per chain, `[B, longest]`; `fill` pads the shorter chains."""
        if len(self.counts) == 1:
            return values.unsqueeze(0)
        longest = max(self.counts)
        filled = values.new_full((len(self.counts) * longest,), fill)
        return filled.index_copy_(0, self.layout.padded, values).view(len(self.counts), longest)

    def flat(self, padded: Tensor) -> Tensor:
        """The inverse of `padded`."""
        return padded[0] if len(self.counts) == 1 else padded.reshape(-1).index_select(0, self.layout.padded)
