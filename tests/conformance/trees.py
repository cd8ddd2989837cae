"""Drafters that only tests need: trees, so that the engine's tree path is judged by the same suite."""

from collections.abc import Mapping
from typing import Any, Self

import torch

from egag.draft_distribution import LogitsDistribution
from egag.entropy import entropy
from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import ModelRunner
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.logits_processor import sample


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

    def begin(self, seq: Sequence) -> None:
        self.runner.read(seq.encoder_ids)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        drawn: list[torch.Tensor] = []
        first = None
        nodes: list[tuple[int, list[int]]] = [(-1, [])]
        for depth in range(min(limit, 2)):
            logits = [self._logits(seq, path) for _, path in nodes]
            if depth == 0:
                first = entropy(logits[0])
            if not gamma.before(depth, LogitsDistribution(logits[0])):
                break
            below: list[tuple[int, list[int]]] = []
            for (row, path), node in zip(nodes, logits, strict=True):
                for token, p in self._pick(seq, node):
                    below.append((len(tokens), [*path, token]))
                    tokens.append(token)
                    parents.append(row)
                    drawn.append(p)
            nodes = below
            if not gamma.after(depth + 1, LogitsDistribution(logits[0]), None):
                break
        if not tokens:
            return Proposal.empty(seq.device)
        probs = torch.stack(drawn) if self.sampled else None
        return Proposal(torch.tensor(tokens), tuple(parents), probs, first)

    def _logits(self, seq: Sequence, path: list[int]) -> torch.Tensor:
        self.runner.crop(0)
        return self.runner.forward([*seq.tokens, *path], rows=1).logits[0]

    def _pick(self, seq: Sequence, logits: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        if not self.sampled:
            return [(int(token), torch.empty(0)) for token in logits.topk(2).indices]
        p = seq.processor(logits[None])[0]
        first = int(sample(p[None], seq.rng, "draft"))
        rest = p.clone()
        rest[first] = 0.0
        if float(rest.sum()) <= 0.0:
            return [(first, p)]
        rest = rest / rest.sum()
        return [(first, p), (int(sample(rest[None], seq.rng, "draft")), rest)]


class PointTreeDrafter(TreeDrafter):
    """The same tree of the most likely tokens: a point mass at every node."""

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        return cls(pair.drafter, sampled=False)
