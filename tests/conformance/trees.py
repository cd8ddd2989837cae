"""Drafters that only tests need: trees, so that the engine's tree path is judged by the same suite."""

from collections.abc import Mapping
from typing import Any, Self

import torch

from egag.controller import GammaController
from egag.entropy import entropy
from sampling.drafter import Context, Drafter
from sampling.forward.runner import ModelRunner, RecomputingRunner
from sampling.proposal import Proposal


class TreeDrafter(Drafter):
    """A binary tree of depth up to gamma (at most 2): at each node two children drawn without replacement.

    It recomputes its model for each node; speed is not its point. `sampled` False = the two most likely
    tokens, as point masses.
    """

    def __init__(self, runner: ModelRunner, sampled: bool = True) -> None:
        self.runner = RecomputingRunner(runner.model, runner.vocab_size)
        self.sampled = sampled

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        return cls(pair.drafter)

    def begin(self, ctx: Context) -> None:
        self.runner.read(ctx.source)

    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        laws: list[torch.Tensor] = []
        first = None
        nodes: list[tuple[int, list[int]]] = [(-1, [])]
        for depth in range(min(limit, 2)):
            logits = [self._logits(ctx, path) for _, path in nodes]
            if depth == 0:
                first = entropy(logits[0])
            if not gamma.before(depth, logits[0]):
                break
            below: list[tuple[int, list[int]]] = []
            for (row, path), node in zip(nodes, logits, strict=True):
                for token, law in self._pick(ctx, node):
                    below.append((len(tokens), [*path, token]))
                    tokens.append(token)
                    parents.append(row)
                    laws.append(law)
            nodes = below
            if not gamma.after(depth + 1, logits[0], None):
                break
        if not tokens:
            return Proposal.empty(ctx.device)
        probs = torch.stack(laws) if self.sampled else None
        return Proposal(torch.tensor(tokens), tuple(parents), probs, first)

    def _logits(self, ctx: Context, path: list[int]) -> torch.Tensor:
        self.runner.crop(0)
        return self.runner.forward([*ctx.tokens, *path], rows=1).logits[0]

    def _pick(self, ctx: Context, logits: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        if not self.sampled:
            return [(int(token), torch.empty(0)) for token in logits.topk(2).indices]
        law = ctx.processor(logits[None])[0]
        first = int(torch.multinomial(law, 1, generator=ctx.rng))
        rest = law.clone()
        rest[first] = 0.0
        if float(rest.sum()) <= 0.0:
            return [(first, law)]
        rest = rest / rest.sum()
        return [(first, law), (int(torch.multinomial(rest, 1, generator=ctx.rng)), rest)]


class PointTreeDrafter(TreeDrafter):
    """The same tree of the most likely tokens: a point mass at every node."""

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        return cls(pair.drafter, sampled=False)
