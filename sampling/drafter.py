"""The contract of a drafter, and the drafter that drafts nothing (= plain autoregression)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from egag.length_rule import LengthRule
from sampling.forward.requests import StepGenerator, run_single
from sampling.pair.drafting_pair import DraftingPair
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.events import Round


class Drafter(ABC):
    """Proposes what the target may say next.

    What it keeps for one sequence lies in `seq.drafter_state[self]`; its own attributes are weights, parameters and
    what it remembers of earlier prompts.

    needs_hidden: layers of the target whose states it wants. keeps_rows: what it keeps for a sequence holds rows of a
    model, which are given up when the text is over, before `finish`.
    """

    needs_hidden: tuple[int, ...] = ()
    keeps_rows = False

    @classmethod
    @abstractmethod
    def build(cls, pair: DraftingPair, values: Mapping[str, Any]) -> Self:
        """The drafter for a loaded pair of models with the given parameters."""

    def begin(self, seq: Sequence) -> None:  # noqa: B027
        """A new sequence: read `seq.tokens[:-1]` if that helps. Timed as prefill."""

    @abstractmethod
    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal | StepGenerator[Proposal]:
        """At most `min(gamma.gamma, limit)` drafts deep; an empty proposal makes the round plain AR.

        A drafter that needs forwards yields each as a request and returns the proposal, so that sequences share them.
        """

    def observe(self, seq: Sequence, round: Round) -> None:  # noqa: B027
        """Learn from a judged round; `seq.tokens` already ends with `round.emitted`."""

    def finish(self, seq: Sequence) -> None:  # noqa: B027
        """The text is whole, after its last `observe`. Not called for a run that was abandoned.

        In a batch it waits for those that began before. What is kept for the sequence is still there, but for rows.
        """

    def adopt(self, earlier: "Drafter", share: bool = False) -> None:  # noqa: B027
        """Go on with what `earlier`, of the same kind, remembers of earlier prompts, as far as it fits.

        share: either may learn from what the other reads from now on, so that nothing need be copied.
        """

    def memory(self) -> str:
        """What is kept of earlier prompts and how much room it takes, in words; empty where nothing is."""
        return ""


class NullDrafter(Drafter):
    """Drafts nothing: plain autoregression through the same loop."""

    @classmethod
    def build(cls, pair: DraftingPair, values: Mapping[str, Any]) -> Self:
        return cls()

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        return Proposal.empty(seq.device)


def stepwise(work: Proposal | StepGenerator[Proposal]) -> StepGenerator[Proposal]:
    """What `Drafter.propose` gives as a generator of forward requests; none where it is the proposal at once."""
    if isinstance(work, Proposal):
        return work
    return (yield from work)


def proposal_of(work: Proposal | StepGenerator[Proposal]) -> Proposal:
    """The proposal that `Drafter.propose` comes to, every forward this sequence's own."""
    return run_single(stepwise(work))
