"""The drafts of a round from a drafter's forwards: a chain, or a tree."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from egag.draft_distribution import LogitsDistribution
from egag.length_rule import LengthRule
from sampling.drafters.draft_tree import Pick, TreeShape, grow_tree, likeliest
from sampling.drafters.drawing import BEST, WithoutReplacement, drawing
from sampling.forward.graphs.further import Feed
from sampling.forward.requests import ForwardRequest, StepGenerator
from sampling.forward.tree import Parents
from sampling.proposal import Proposal
from utils.logits_processor import LogitsProcessor, one_if_finite
from utils.numbers.random_numbers import RNG


@dataclass(frozen=True, slots=True)
class DraftGrowth:
    """What the drafts of a round are made of, beside the forwards.

    limit: the most drafts of a path. device: where the proposal goes. acceptance: see `ForwardDrafter.acceptance`.
    over: whether a draft `[1]` ends the text. draft_ids: see `LogitsDistribution`.
    """

    gamma: LengthRule
    limit: int
    processor: LogitsProcessor
    rng: RNG
    device: torch.device
    acceptance: Callable[[], Tensor | None] = lambda: None
    over: Callable[[Tensor], bool] = lambda token: False
    draft_ids: Tensor | None = None

    def proposal(self, shape: TreeShape | None, logits: Tensor, feed: Feed) -> StepGenerator[Proposal]:
        """A chain (no shape) or a tree behind logits `[1, V]`; feed: see `ForwardDrafter.feed`."""
        if shape is None:
            return (yield from self._chain(logits, feed))
        return (yield from self._tree(shape, logits, feed))

    def _chain(self, logits: Tensor, feed: Feed) -> StepGenerator[Proposal]:
        gamma, tokens, probs, best = self.gamma, list[Tensor](), list[Tensor](), list[Tensor]()
        first: Tensor | None = None
        while gamma.before(len(tokens), distribution := self._distribution(logits, self.acceptance())):
            # The output of a forward is valid until the next forward.
            first = distribution.nats if first is None else first
            if self.processor.greedy:
                token, chance = yield ForwardRequest(BEST, logits.to(self.device))
                best.append(chance)
            else:
                token, q = yield ForwardRequest(drawing(self.processor), (logits.to(self.device), self.rng))
                probs.append(q)
            tokens.append(token)
            if len(tokens) == self.limit or not gamma.after(len(tokens), distribution, token[0]) or self.over(token):
                break
            logits = yield from feed(token, None)
        if not tokens:
            return Proposal.empty(self.device)
        if probs:
            return Proposal(torch.cat(tokens), None, torch.cat(probs), first)
        return Proposal(torch.cat(tokens), None, None, first, one_if_finite(torch.cat(best)))

    def _distribution(self, logits: Tensor, acceptance: Tensor | None = None) -> LogitsDistribution:
        return LogitsDistribution(logits[0], acceptance, self.draft_ids)

    def _tree(self, shape: TreeShape, logits: Tensor, feed: Feed) -> StepGenerator[Proposal]:
        distribution = self._distribution(logits)
        if not self.gamma.tree_growth.start_tree(distribution):
            return Proposal.empty(self.device)
        first = distribution.nats
        depth = min(self.limit, self.gamma.gamma, shape.tokens)  # no path of a tree has more drafts than the tree
        drawn = WithoutReplacement(self.processor, self.rng) if shape.drawn else None
        pick: Pick = drawn or partial(likeliest, draft_ids=self.draft_ids)
        tree = yield from grow_tree(shape, depth, logits, feed, self.gamma, pick)
        if not len(tree.tokens):
            return Proposal.empty(self.device)
        tokens, parents = tree.tokens.to(self.device), Parents(tree.parents.there.to(self.device))
        if tree.probs is not None:
            return Proposal(tokens, parents, tree.probs.to(self.device), first)
        return Proposal(tokens, parents, None, first, one_if_finite(tree.chances.to(self.device)))
