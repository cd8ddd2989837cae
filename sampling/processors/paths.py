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

    prompt: how many tokens belong to the prompt. stop: ids that end it. following: for each n-gram length that was
    asked for, what followed the first n - 1 tokens.
    """

    prompt: int
    stop: tuple[int, ...]
    device: torch.device
    vocab_size: int
    tokens: list[int] = field(default_factory=list)
    following: dict[int, dict[tuple[int, ...], list[int]]] = field(default_factory=dict)
    _counts: Tensor | None = None
    _seen: set[int] = field(default_factory=set)
    _present: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))

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
        """How often each token stands in the whole text and in the output, `[2, V]`."""
        if self._counts is None:
            self._counts = torch.zeros(2, self.vocab_size, device=self.device)
            self._count(0)
        return self._counts

    @property
    def present(self) -> Tensor:
        """The different tokens of the text, `[m]`."""
        assert self.counts is self._counts
        return self._present[: len(self._seen)]

    def followed(self, size: int) -> dict[tuple[int, ...], list[int]]:
        """What followed each run of `size` - 1 tokens."""
        if size not in self.following:
            self.following[size] = {}
            note_grams(self.following[size], self.tokens, size, 0)
        return self.following[size]

    def _count(self, start: int) -> None:
        assert self._counts is not None
        added, said = self.tokens[start:], self.tokens[max(start, self.prompt) :]
        places = sent([*added, *(token + self.vocab_size for token in said)], self.device)
        self._counts.view(-1).index_add_(0, places, torch.ones_like(places, dtype=self._counts.dtype))
        self._note([token for token in dict.fromkeys(added) if token not in self._seen])

    def _note(self, new: list[int]) -> None:
        """Put tokens that are new to the text behind `present`; its room doubles."""
        before, after = len(self._seen), len(self._seen) + len(new)
        if after > len(self._present):
            room = torch.empty(max(after, 2 * before), dtype=torch.long, device=self.device)
            room[:before] = self._present[:before]
            self._present = room
        if new:
            self._present[before:after] = sent(new, self.device)
            self._seen.update(new)


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
        present = self.committed.present
        return torch.cat([present, self.drafts]) if len(self.drafts) else present

    @cached_property
    def counts(self) -> Tensor:
        """How often each of `columns` stands in the text of each row, and in its output: `[2, m, k]`."""
        committed = self.committed.counts.index_select(1, self.columns).unsqueeze(1)
        if not len(self.drafts):
            return committed.expand(-1, len(self.on_path), -1)
        same = (self.drafts.unsqueeze(1) == self.columns).to(committed.dtype)
        return committed + self.on_path.to(committed.dtype) @ same

    @cached_property
    def texts(self) -> list[list[int]]:
        """The drafts in front of each row, in order; on a card this waits for them."""
        drafts: list[int] = self.drafts.tolist()
        return [[drafts[place] for place, on in enumerate(row) if on] for row in self.on_path.tolist()]
