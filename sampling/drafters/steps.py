"""Drafting step by step: what every drafter with a model has in common, on a chain and on a tree."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from egag.controller import GammaController
from egag.entropy import entropy
from sampling.drafter import Context, Drafter
from sampling.drafters.draft_tree import Step, TreeShape, grow_tree
from sampling.proposal import Proposal
from utils.logits_processor import sample


class StepDrafter(Drafter):
    """Draws a chain from its own law, or proposes a tree of its most likely continuations.

    A chain is drawn from the processed distribution q, token by token, as the rule allows; a greedy q is a point
    mass. A tree is not drawn: its nodes are point masses, which is what makes it lossless under sampling as well.
    """

    shape: TreeShape | None = None

    @abstractmethod
    def room(self, ctx: Context) -> int:
        """How many tokens deep it can draft here; 0 = not at all."""

    @abstractmethod
    def root(self, ctx: Context) -> Tensor:
        """Raw logits `[1, V]` of the first draft, after all of `ctx.tokens`."""

    @abstractmethod
    def step(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """Raw logits `[k, V]` behind k more drafts `[k]`, which are numbered in the order they are fed.

        parents: the number of each one's parent, -1 = the text; a chain feeds one at a time.
        """

    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        limit = min(limit, self.room(ctx))
        if limit <= 0 or gamma.gamma == 0:
            return Proposal.empty(ctx.device)
        common = ctx.target.vocab_size

        def step(tokens: Tensor, parents: Sequence[int]) -> Tensor:
            """`step` over the tokens that the pair has in common."""
            return self.step(tokens, parents)[:, :common]

        logits = self.root(ctx)[:, :common]
        if self.shape is None:
            return self._chain(ctx, gamma, limit, logits, step)
        if not gamma.before(0, logits[0]):
            return Proposal.empty(ctx.device)
        tokens, parents = grow_tree(self.shape, min(limit, gamma.gamma), logits, step)
        return Proposal(torch.tensor(tokens, device=ctx.device), parents, None, entropy(logits[0]))

    def _chain(self, ctx: Context, gamma: GammaController, limit: int, logits: Tensor, step: Step) -> Proposal:
        first = entropy(logits[0])
        tokens: list[Tensor] = []
        laws: list[Tensor] = []
        while gamma.before(len(tokens), logits[0]):
            if ctx.processor.greedy:
                tokens.append(logits.to(ctx.device).argmax(dim=-1))
            else:
                laws.append(ctx.processor(logits.to(ctx.device)))
                tokens.append(sample(laws[-1], ctx.rng))
            if len(tokens) == limit or not gamma.after(len(tokens), logits[0], tokens[-1][0]):
                break
            logits = step(tokens[-1], [len(tokens) - 2])
        if not tokens:
            return Proposal.empty(ctx.device)
        return Proposal(torch.cat(tokens), None, torch.cat(laws) if laws else None, first)
