"""A smaller causal model drafts, one token after the other."""

from collections import abc
from typing import Any, Self

from torch import Tensor

from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.runner import Runner, WholeRunner, catch_up, prefill
from sampling.sequence import Sequence
from utils.errors import UserError


class ModelDrafter(ForwardDrafter):
    """Draws a chain from its own processed distribution q (Leviathan 2023; Chen 2023).

    A sequence's cache holds what it was fed: rolled back to the committed tokens and caught up at the top of a
    round, whatever happened in the last one. A rule that allows no draft (gamma 0) costs no forward.
    """

    def __init__(self, runner: WholeRunner) -> None:
        self.runner = runner

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        if pair.drafter is None:
            raise UserError(pair.lack("model"))
        rough = pair.drafts_in_int8("model", values["draft_weights"])
        return cls(pair.drafter.on(pair.drafter.model.int8) if rough else pair.drafter)

    def begin(self, seq: Sequence) -> None:
        slot = seq.drafting[self] = self.runner.another()
        slot.read(seq.encoder_ids)
        prefill(slot, seq.tokens[:-1][: slot.window])

    def room(self, seq: Sequence) -> int:
        return self.runner.window - len(seq.tokens)

    def root(self, seq: Sequence) -> Tensor:
        slot: Runner = seq.drafting[self]
        slot.crop(min(slot.length, len(seq.tokens) - 1))
        return catch_up(slot, seq.tokens).logits

    def feed(self, seq: Sequence, tokens: Tensor, parents: abc.Sequence[int]) -> Tensor:
        slot: Runner = seq.drafting[self]
        return slot.forward(tokens).logits
