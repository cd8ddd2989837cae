"""Drafting step by step: what every drafter with a model has in common, on a chain and on a tree."""

from abc import abstractmethod
from collections import abc

import torch
from torch import Tensor

from egag.belief import Logits
from egag.controller import GammaController
from sampling.drafter import Drafter
from sampling.drafters.draft_tree import Feed, TreeShape, grow_tree
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.logits_processor import one_if_finite, sample
from utils.sent import sent


class ForwardDrafter(Drafter):
    """Draws a chain from its own distribution, or proposes a tree of its most likely continuations.

    A chain is drawn from the processed distribution q, token by token, as the rule allows; a greedy q is a point
    mass. A tree is not drawn: its nodes are point masses, which is what makes it lossless under sampling as well.
    """

    shape: TreeShape | None = None

    @abstractmethod
    def room(self, seq: Sequence) -> int:
        """How many tokens deep it can draft here; 0 = not at all."""

    @abstractmethod
    def root(self, seq: Sequence) -> Tensor:
        """Raw logits `[1, V]` of the first draft, after all of `seq.tokens`."""

    @abstractmethod
    def feed(self, seq: Sequence, tokens: Tensor, parents: abc.Sequence[int]) -> Tensor:
        """Raw logits `[k, V]` behind k more drafts `[k]`, which are numbered in the order they are fed.

        parents: the number of each one's parent, -1 = the text; a chain feeds one at a time.
        """

    def propose(self, seq: Sequence, gamma: GammaController, limit: int) -> Proposal:
        limit = min(limit, self.room(seq))
        if limit <= 0 or gamma.gamma == 0:
            return Proposal.empty(seq.device)
        common = seq.slot.vocab_size

        def feed(tokens: Tensor, parents: abc.Sequence[int]) -> Tensor:
            """`feed` over the tokens that the pair has in common."""
            return self.feed(seq, tokens, parents)[:, :common]

        logits = self.root(seq)[:, :common]
        if self.shape is None:
            return self._chain(seq, gamma, limit, logits, feed)
        if not gamma.plant(Logits(logits[0])):
            return Proposal.empty(seq.device)
        depth = min(limit, gamma.gamma, self.shape.tokens)  # no path of a tree has more drafts than the tree
        tree = grow_tree(self.shape, depth, logits, feed, gamma)
        if not tree.tokens:
            return Proposal.empty(seq.device)
        return Proposal(sent(tree.tokens, seq.device), tree.parents, None, logits[0])

    def _chain(self, seq: Sequence, gamma: GammaController, limit: int, logits: Tensor, feed: Feed) -> Proposal:
        first = logits[0].clone()  # what a forward gave holds until the next one
        tokens: list[Tensor] = []
        probs: list[Tensor] = []
        best: list[Tensor] = []
        while gamma.before(len(tokens), belief := Logits(logits[0])):
            if seq.processor.greedy:
                tokens.append(logits.to(seq.device).argmax(dim=-1))
                best.append(logits.to(seq.device)[0, tokens[-1]])
            else:
                probs.append(seq.processor(logits.to(seq.device)))
                tokens.append(sample(probs[-1], seq.rng))
            if len(tokens) == limit or not gamma.after(len(tokens), belief, tokens[-1][0]):
                break
            logits = feed(tokens[-1], [len(tokens) - 2])
        if not tokens:
            return Proposal.empty(seq.device)
        if probs:
            return Proposal(torch.cat(tokens), None, torch.cat(probs), first)
        return Proposal(torch.cat(tokens), None, None, first, one_if_finite(torch.cat(best)))
