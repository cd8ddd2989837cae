"""The chains of many sequences judged at once: the same verdicts as one by one, of operations on all of them.

Their rows lie one behind the other: of a sequence with n drafts n + 1 rows of p, row 0 at its root, and n of drafts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from egag.entropy import entropy
from sampling.proposal import Proposal
from utils.sent import sent


@dataclass(frozen=True)
class Chains:
    """Chains of drafts, one a sequence: drawn from distributions, or point masses, all of them."""

    proposals: Sequence[Proposal]
    device: torch.device

    @cached_property
    def counts(self) -> list[int]:
        """Drafts of each."""
        return [len(one) for one in self.proposals]

    @cached_property
    def tokens(self) -> Tensor:
        """All drafts `[n]`."""
        return torch.cat([one.tokens for one in self.proposals])

    @cached_property
    def roots(self) -> Tensor:
        """The row of p at each root, `[B]`."""
        return sent([start + place for place, start in enumerate(self._starts)], self.device)

    @cached_property
    def firsts(self) -> Tensor:
        """Each one's first draft, `[B]`."""
        return sent(self._starts, self.device)

    @cached_property
    def lengths(self) -> Tensor:
        """`counts`, `[B]`."""
        return sent(self.counts, self.device)

    @cached_property
    def rows(self) -> Tensor:
        """The row of p that judges each draft, `[n]`."""
        return sent([row + place for place, row in self._numbered()], self.device)

    @cached_property
    def probs(self) -> Tensor | None:
        """What the drafts were drawn from, `[n, V]`; None where all are point masses."""
        parts = [one.probs for one in self.proposals if one.probs is not None]
        return torch.cat(parts) if parts else None

    @cached_property
    def q(self) -> Tensor:
        """q of each draft, `[n]`."""
        if self.probs is not None:
            return self.probs.gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)
        like = torch.ones(sum(self.counts), device=self.device)
        parts = like.split(self.counts)
        told = [part if one.chances is None else one.chances for part, one in zip(parts, self.proposals, strict=True)]
        return torch.cat(told) if told else like

    @cached_property
    def surprises(self) -> Tensor:
        """Entropy of the raw logits behind each first draft, `[B]`; NaN where there are none."""
        firsts = [one.first for one in self.proposals if one.first is not None]
        told = entropy(torch.stack(firsts)).to(self.device) if firsts else torch.empty(0, device=self.device)
        if len(firsts) == len(self.proposals):
            return told
        whole = torch.full((len(self.proposals),), torch.nan, device=self.device, dtype=told.dtype)
        places = [place for place, one in enumerate(self.proposals) if one.first is not None]
        return whole.index_copy_(0, sent(places, self.device), told) if firsts else whole

    def of_last(self, accepted: Tensor, like: Tensor) -> Tensor:
        """The distribution `[B, V]` of each one's first rejected draft, else of its last: one-hot for a point mass."""
        at = self.firsts + torch.minimum(accepted, self.lengths - 1).clamp(min=0)
        at = at.clamp(max=sum(self.counts) - 1)
        if self.probs is not None:
            return self.probs.index_select(0, at)
        return torch.zeros_like(like).scatter_(1, self.tokens.index_select(0, at).unsqueeze(1), 1.0)

    def accepted(self, passed: Tensor) -> Tensor:
        """How many drafts of each pass before the first that does not, `[B]`; passed: `[n]` bool."""
        return self.padded(passed).long().cumprod(1).sum(1)

    def padded(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """What each draft has, `[n]`, as a row a chain, `[B, longest]`, shorter ones filled up."""
        room = values.new_full((len(self.counts) * self._most,), fill)
        return room.index_copy_(0, self._places, values).view(len(self.counts), self._most)

    def flat(self, padded: Tensor) -> Tensor:
        """`padded`, backwards."""
        return padded.reshape(-1).index_select(0, self._places)

    @cached_property
    def depths(self) -> Tensor:
        """Each draft's place in its chain, `[n]`, from 1 on."""
        return sent([number for count in self.counts for number in range(1, count + 1)], self.device)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(self.counts)][:-1]

    @cached_property
    def _most(self) -> int:
        return max(self.counts)

    @cached_property
    def _places(self) -> Tensor:
        """Where each draft lies among rows of `_most`."""
        starts = self._starts
        return sent([place * self._most + row - starts[place] for place, row in self._numbered()], self.device)

    def _numbered(self) -> Iterator[tuple[int, int]]:
        """(sequence, number) of each draft."""
        return ((place, start + row) for place, start in enumerate(self._starts) for row in range(self.counts[place]))
