"""A smaller causal model drafts, one token after the other."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import Tensor

from sampling.drafter import Context
from sampling.drafters.steps import StepDrafter
from sampling.forward.runner import ModelRunner
from utils.errors import UserError


class ModelDrafter(StepDrafter):
    """Draws a chain from its own processed distribution q (Leviathan 2023; Chen 2023).

    Its cache holds what it was fed: rolled back to the committed tokens and caught up at the top of a
    round, whatever happened in the last one. A rule that allows no draft (gamma 0) costs no forward.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        if pair.drafter is None:
            raise UserError(pair.lack("model"))
        rough = pair.drafts_in_int8("model", values["draft_weights"])
        return cls(pair.drafter.on(pair.drafter.model.int8) if rough else pair.drafter)

    def begin(self, ctx: Context) -> None:
        self.runner.read(ctx.source)
        self.runner.prefill(ctx.tokens[:-1][: self.runner.window])

    def room(self, ctx: Context) -> int:
        return self.runner.window - len(ctx.tokens)

    def root(self, ctx: Context) -> Tensor:
        self.runner.crop(min(self.runner.length, len(ctx.tokens) - 1))
        return self.runner.catch_up(ctx.tokens).logits

    def step(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        return self.runner.forward(tokens).logits
