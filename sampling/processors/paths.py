"""The text in front of each row of a round: what is committed, and the drafts on the row's own path."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from sampling.forward.tree import seen_in_tree
from sampling.proposal import Proposal
from utils.device.sent import sent


@dataclass(slots=True)
class Committed:
    """What is known of a text's committed tokens, brought up to date by the tokens that were added since.

    prompt: how many tokens belong to the prompt. stop: ids that end it. counts: `[2, V]`, how often each token stands
    in the whole text and in the output. present: `[m]`, the different tokens. following: for each n-gram length that
    was asked for, what followed the first n - 1 tokens.
    """

    prompt: int
    stop: tuple[int, ...]
    device: torch.device
    vocab_size: int
    tokens: list[int] = field(default_factory=list)
    following: dict[int, dict[tuple[int, ...], list[int]]] = field(default_factory=dict)
    _counts: Tensor | None = None
    _present: Tensor | None = None

    @property
    def output(self) -> int:
        """How many tokens of the output are committed."""
        return len(self.tokens) - self.prompt

    def bring_up_to(self, tokens: Sequence[int]) -> None:
        """Take in what was committed; nothing that is committed is ever taken back."""
        added = tokens[len(self.tokens) :]
        if not added:
            return
        before = len(self.tokens)
        self.tokens.extend(added)
        for size, grams in self.following.items():
            note_grams(grams, self.tokens, size, before)
        if self._counts is not None:
            self._count(before)

    @property
    def counts(self) -> Tensor:
        if self._counts is None:
            self._counts = torch.zeros(2, self.vocab_size, device=self.device)
            self._count(0)
        return self._counts

    @property
    def present(self) -> Tensor:
        counts = self.counts
        if self._present is None:
            self._present = sent(list(dict.fromkeys(self.tokens)), counts.device)
        return self._present

    def followed(self, size: int) -> dict[tuple[int, ...], list[int]]:
        """What followed each run of `size` - 1 tokens."""
        if size not in self.following:
            self.following[size] = {}
            note_grams(self.following[size], self.tokens, size, 0)
        return self.following[size]

    def _count(self, start: int) -> None:
        assert self._counts is not None
        added = sent(self.tokens[start:], self.device)
        ones = torch.ones(len(added), device=self.device)
        self._counts[0].index_add_(0, added, ones)
        first = max(0, self.prompt - start)
        self._counts[1].index_add_(0, added[first:], ones[first:])
        self._present = None


def note_grams(grams: dict[tuple[int, ...], list[int]], tokens: Sequence[int], size: int, start: int) -> None:
    """Note what follows each run of `size` - 1 tokens, of the tokens from `start` on."""
    for end in range(max(start, size - 1), len(tokens)):
        grams.setdefault(tuple(tokens[end - size + 1 : end]), []).append(tokens[end])


@dataclass(frozen=True)
class Paths:
    """The texts in front of m rows. drafts: `[n]`. on_path: `[m, n]` bool, the drafts that lead to each row."""

    committed: Committed
    drafts: Tensor
    on_path: Tensor

    @classmethod
    def of_round(cls, committed: Committed, proposal: Proposal) -> "Paths":
        """The n + 1 rows that the target computes: the root's, and one behind each draft."""
        count = len(proposal)
        if proposal.parents is None:
            on_path = torch.ones(count + 1, count, dtype=torch.bool, device=committed.device).tril(-1)
        else:
            on_path = seen_in_tree(proposal.parents, committed.device)[:, 1:]
        return cls(committed, proposal.tokens.to(committed.device), on_path)

    @cached_property
    def depths(self) -> Tensor:
        """How many drafts lead to each row, `[m]`."""
        return self.on_path.sum(1)

    @cached_property
    def columns(self) -> Tensor:
        """Tokens that stand in any of the texts, `[k]`; a draft that stands in the text is there twice."""
        return torch.cat([self.committed.present, self.drafts])

    @cached_property
    def counts(self) -> Tensor:
        """How often each of `columns` stands in the text of each row, and in its output: `[2, m, k]`."""
        committed = self.committed.counts.index_select(1, self.columns).unsqueeze(1)
        same = (self.drafts.unsqueeze(1) == self.columns).to(committed.dtype)
        return committed + self.on_path.to(committed.dtype) @ same

    @cached_property
    def texts(self) -> list[list[int]]:
        """The drafts in front of each row, in order; on a card this waits for them."""
        drafts: list[int] = self.drafts.tolist()
        return [[drafts[place] for place, on in enumerate(row) if on] for row in self.on_path.tolist()]
