"""A drafter that lets the target say the first token alone, as some repositories do."""

from typing import Any

from egag.controller import GammaController
from sampling.drafter import Context, Drafter
from sampling.events import Step
from sampling.proposal import Proposal


class TargetFirst(Drafter):
    """Another drafter that drafts nothing in the first round: the first token comes from the target alone."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.needs_hidden = drafter, drafter.needs_hidden
        self._first = True

    @classmethod
    def build(cls, pair: Any, values: Any) -> "TargetFirst":
        raise NotImplementedError("it wraps a drafter that was built")

    def begin(self, ctx: Context) -> None:
        self._first = True
        self.drafter.begin(ctx)

    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        if self._first:
            self._first = False
            return Proposal.empty(ctx.device)
        return self.drafter.propose(ctx, gamma, limit)

    def observe(self, ctx: Context, step: Step) -> None:
        self.drafter.observe(ctx, step)

    def finish(self, ctx: Context) -> None:
        self.drafter.finish(ctx)
