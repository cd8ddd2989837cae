"""A smaller causal model drafts, one token after the other."""

from collections import abc
from itertools import takewhile
from typing import Any, Self

from torch import Tensor

from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.events import Round
from sampling.forward.runner import Runner, WholeRunner, catch_up, prefill
from sampling.sequence import Sequence
from utils.errors import UserError


class ModelDrafter(ForwardDrafter):
    """Draws a chain from its own processed distribution q (Leviathan 2023; Chen 2023).

    A sequence's cache holds what it was fed: rolled back to the committed tokens after each round, whether or not it
    will draft in the next one, and caught up when it does. A rule that allows no draft (gamma 0) costs no forward.
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

    def observe(self, seq: Sequence, round: Round) -> None:
        """Keep what was fed of the text, and the drafts that were accepted: another's may stand beside them."""
        slot: Runner = seq.drafting[self]
        own = sum(1 for _ in takewhile(lambda place: place[0] == place[1], enumerate(round.path)))
        slot.crop(min(slot.length, len(seq.tokens) - len(round.emitted) + own))
        self._roll_back(seq)

    def room(self, seq: Sequence) -> int:
        return self.runner.window - len(seq.tokens)

    def root(self, seq: Sequence) -> Tensor:
        return catch_up(self._roll_back(seq), seq.tokens).logits

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        slot: Runner = seq.drafting[self]
        return slot.forward(tokens).logits

    def _roll_back(self, seq: Sequence) -> Runner:
        slot: Runner = seq.drafting[self]
        slot.crop(min(slot.length, len(seq.tokens) - 1))
        return slot
