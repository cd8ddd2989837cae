"""The contract of a drafter, and the drafter that drafts nothing (= plain autoregression)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import Any, Self

from egag.length_rule import LengthRule
from sampling.forward.requests import StepGenerator, run_single
from sampling.pair.drafting_pair import DraftingPair
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.spare import attempt
from utils.events import Round


class Drafter(ABC):
    """Proposes the next tokens of the target.

    State for one sequence is in `seq.drafter_state[self]`. The drafter's own attributes are weights, parameters and its
    memory of earlier prompts.

    needs_hidden: the layers of the target whose hidden states the drafter reads. keeps_rows: whether the state for a
    sequence holds cache rows of a model. Such state is released when the text ends, before `finish`.
    """

    needs_hidden: tuple[int, ...] = ()
    keeps_rows = False

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that says anew what is done for one sequence says so for many, too, or they are asked one by one."""
        super().__init_subclass__(**options)
        if "propose" in vars(cls) and "propose_together" not in vars(cls):
            cls.propose_together = Drafter.propose_together  # type: ignore[method-assign]
        if "observe" in vars(cls) and "observe_together" not in vars(cls):
            cls.observe_together = Drafter.observe_together  # type: ignore[method-assign]

    @classmethod
    @abstractmethod
    def build(cls, pair: DraftingPair, values: Mapping[str, Any]) -> Self:
        """The drafter for a loaded pair of models with the given parameters."""

    def begin(self, seq: Sequence) -> None:  # noqa: B027
        """Start a new sequence. The drafter may prefill `seq.tokens[:-1]`; the time counts as prefill."""

    @abstractmethod
    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal | StepGenerator[Proposal]:
        """Propose drafts, at most `min(gamma.gamma, limit)` deep. With an empty proposal the round is autoregressive.

        A drafter that needs forwards is a generator: it yields each forward as a request and returns the proposal.
        Sequences of a batch then share the forwards.
        """

    def propose_together(self, seqs: ListOf[Sequence]) -> ListOf[Proposal | None]:
        """What `propose` gives for each sequence with its rule and its room, where it can be had for many at once.

        None for a sequence that is asked by itself. An error leaves all as they were, and each is asked by itself.
        """
        return [None] * len(seqs)

    def observe(self, seq: Sequence, round: Round) -> None:  # noqa: B027
        """Learn from a verified round; `seq.tokens` already ends with `round.emitted`."""

    def observe_together(self, seqs: ListOf[Sequence], rounds: ListOf[Round]) -> ListOf[Exception | None]:
        """`observe` for many sequences; the error of each that fails. One that is raised leaves all as they were."""
        if type(self).observe is Drafter.observe:
            return [None] * len(seqs)
        return [attempt(self.observe, *each) for each in zip(seqs, rounds, strict=True)]

    def finish(self, seq: Sequence) -> None:  # noqa: B027
        """Learn from a finished text, after its last `observe`. It is not called for an abandoned run.

        In a batch the call waits for the texts that began before. The state of the sequence still exists, except cache
        rows.
        """

    def adopt(self, earlier: "Drafter", share: bool = False) -> None:  # noqa: B027
        """Continue with the memory of earlier prompts of `earlier`, a drafter of the same class, as far as it fits.

        share: both drafters may use one memory from now on, so nothing has to be copied.
        """

    def memory(self) -> str:
        """A description of the memory of earlier prompts and its size; empty without a memory."""
        return ""


class NullDrafter(Drafter):
    """Drafts nothing: plain autoregression through the same loop."""

    @classmethod
    def build(cls, pair: DraftingPair, values: Mapping[str, Any]) -> Self:
        return cls()

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        return Proposal.empty(seq.device)

    def propose_together(self, seqs: ListOf[Sequence]) -> ListOf[Proposal | None]:
        return [Proposal.empty(seqs[0].device)] * len(seqs) if seqs else []


def stepwise(work: Proposal | StepGenerator[Proposal]) -> StepGenerator[Proposal]:
    """The result of `Drafter.propose` as a generator of forward requests. It yields none if the proposal is ready."""
    if isinstance(work, Proposal):
        return work
    return (yield from work)


def proposal_of(work: Proposal | StepGenerator[Proposal]) -> Proposal:
    """The proposal of `Drafter.propose`, with every forward run for this sequence alone."""
    return run_single(stepwise(work))
