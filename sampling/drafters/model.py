"""A smaller causal model drafts, one token after the other."""

from collections.abc import Mapping
from typing import Any, Self

import torch

from egag.controller import GammaController
from egag.entropy import entropy
from sampling.drafter import Context, Drafter
from sampling.proposal import Proposal
from sampling.runner import ModelRunner
from utils.errors import UserError
from utils.logits_processor import sample


class ModelDrafter(Drafter):
    """Draws a chain from its own processed distribution q (Leviathan 2023; Chen 2023).

    Its cache holds what it was fed: rolled back to the committed tokens and caught up at the top of a
    round, whatever happened in the last one. A rule that allows no draft (gamma 0) costs no forward.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        if pair.drafter is None:
            raise UserError("no drafter model is loaded; allowed: start with --drafter ID, DIR or FILE.gguf")
        return cls(pair.drafter)

    def begin(self, ctx: Context) -> None:
        self.runner.prefill(ctx.tokens[:-1][: self.runner.window])

    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        limit = min(limit, self.runner.window - len(ctx.tokens))
        if limit <= 0 or gamma.gamma == 0:
            return Proposal.empty(ctx.device)
        self.runner.crop(min(self.runner.length, len(ctx.tokens) - 1))
        logits = self.runner.catch_up(ctx.tokens).logits
        first = entropy(logits[0])
        tokens: list[torch.Tensor] = []
        laws: list[torch.Tensor] = []
        while gamma.before(len(tokens), logits[0]):
            laws.append(ctx.processor(logits.to(ctx.device)))
            tokens.append(sample(laws[-1], ctx.rng))
            if len(tokens) == limit or not gamma.after(len(tokens), logits[0], tokens[-1][0]):
                break
            logits = self.runner.forward(tokens[-1]).logits
        if not tokens:
            return Proposal.empty(ctx.device)
        return Proposal(torch.cat(tokens), None, torch.cat(laws), first)
