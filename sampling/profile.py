"""What a pair's forwards and drafts cost on this machine: measured once, kept, and read by whoever weighs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from egag.price import Price

ROWS = (*range(1, 18), 24, 32)
"""Rows of the target's forward that are timed, behind each of the contexts."""

Times = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """Seconds of one drafter: the first draft of a round with what it learns of the round before, each further one.

    acceptance: the share of drafts that were accepted of those judged at position 1, 2, ..., on the texts that it was
    timed on: where learning begins.
    """

    first_s: float
    step_s: float
    acceptance: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """Times in seconds. forward: by tokens of context, (rows, seconds) of the target, rows ascending.

    prefill: (tokens, seconds). drafters: by the name of what drafts: `model`, a kind of head, a copier. rest_s: what a
    round costs besides. measured: when, UTC.
    """

    forward: Mapping[int, Times]
    prefill: Times
    rest_s: float
    drafters: Mapping[str, DraftTimes] = field(default_factory=dict)
    measured: str = ""

    def price(self, drafter: str, context: int = 0) -> Price | None:
        """What a round costs with this drafter, behind about so many tokens; None where it was not timed."""
        if drafter not in self.drafters:
            return None
        nearest = min(self.forward, key=lambda tokens: abs(tokens - context))
        times = self.drafters[drafter]
        return Price(self.forward[nearest], times.first_s, times.step_s, self.rest_s)
