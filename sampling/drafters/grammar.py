"""Drafts what the grammar forces: where only one spelling may follow, its tokens are known without a model."""

from collections import abc
from dataclasses import replace
from typing import Any, Self

from egag.length_rule import LengthRule
from sampling.drafter import Drafter, stepwise
from sampling.forward.requests import StepGenerator
from sampling.pair.profile import NOTHING
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.events import FORCED, Round


def forced(seq: Sequence, limit: int) -> list[int]:
    """The canonical tokens that must follow the text, at most so many; none without a grammar."""
    grammar = seq.grammar
    return [] if grammar is None else grammar.forced(limit)


class GrammarDrafter(Drafter):
    """Drafts the tokens that the grammar forces; where it forces none, another drafter drafts.

    A forced token is a draft like any other, a point mass that the target judges: nothing is injected into the text. So
    a text that the mask lets be spelt in another way is spelt as the target draws it.
    """

    def __init__(self, other: Drafter, name: str = NOTHING) -> None:
        self.other, self.name = other, name
        self.needs_hidden, self.keeps_rows = other.needs_hidden, False

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any], *inside: Any) -> Self:
        (other,) = inside
        return cls(other, values["grammar_else"])

    def begin(self, seq: Sequence) -> None:
        self.other.begin(seq)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        tokens = forced(seq, min(gamma.gamma, limit)) if limit > 0 and gamma.before(0, None) else []
        kept = tokens[: gamma.truncation.truncate((1.0,) * len(tokens))] if tokens else []
        if kept:
            return Proposal(sent(kept, seq.device), source=FORCED)
        proposal = yield from stepwise(self.other.propose(seq, gamma, limit))
        return replace(proposal, source=proposal.source or self.name)

    def observe(self, seq: Sequence, round: Round) -> None:
        self.other.observe(seq, round)

    def finish(self, seq: Sequence) -> None:
        self.other.finish(seq)

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        if isinstance(earlier, GrammarDrafter) and type(earlier.other) is type(self.other):
            self.other.adopt(earlier.other, share)

    def memory(self) -> str:
        return self.other.memory()
