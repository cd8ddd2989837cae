"""A smaller causal model drafts, one token after the other."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import Tensor

from sampling.drafter import Context
from sampling.drafters.steps import StepDrafter
from sampling.int8 import in_int8
from sampling.lean import LeanModel
from sampling.runner import ModelRunner
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
        return cls(_runner(pair, values["draft_weights"]))

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


def _runner(pair: Any, wanted: str) -> ModelRunner:
    """The drafter with the weights that `draft_weights` asks for. Raises `UserError` where it cannot have them."""
    model = pair.drafter.model
    lean, info = isinstance(model, LeanModel), pair.drafter_info
    if wanted == "int8" and not lean:
        raise UserError("draft_weights int8: the drafter does not run on the lean forward; allowed: auto, full")
    rough = lean and in_int8(wanted, model.embedding, info is not None and info.trained)
    runner: ModelRunner = pair.drafter.on(model.int8) if rough else pair.drafter
    return runner
