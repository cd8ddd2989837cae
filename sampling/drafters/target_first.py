"""A drafter that leaves the first token to the target alone, as some repositories do."""

from typing import Any

from egag.length_rule import LengthRule
from sampling.drafter import Drafter, stepwise
from sampling.forward.requests import StepGenerator
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.events import Round


class TargetFirst(Drafter):
    """Wraps a drafter and drafts nothing in the first round: the first token comes from the target alone."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.needs_hidden = drafter, drafter.needs_hidden

    @classmethod
    def build(cls, pair: object, values: Any) -> "TargetFirst":
        raise NotImplementedError("it wraps a drafter that was built")

    def begin(self, seq: Sequence) -> None:
        seq.drafter_state[self] = True
        self.drafter.begin(seq)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        if seq.drafter_state[self]:
            seq.drafter_state[self] = False
            return Proposal.empty(seq.device)
        return (yield from stepwise(self.drafter.propose(seq, gamma, limit)))

    def observe(self, seq: Sequence, round: Round) -> None:
        self.drafter.observe(seq, round)

    def finish(self, seq: Sequence) -> None:
        self.drafter.finish(seq)
