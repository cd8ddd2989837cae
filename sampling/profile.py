"""What a pair's forwards and drafts cost on this machine: measured once, kept, and read by whoever weighs them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from egag.gain import best_length
from egag.price import Price

ROWS = (*range(1, 18), 24, 32)
"""Rows of the target's forward that are timed, behind each of the contexts."""

NONE = "none"
# Drafters this near to the best, by what was measured, may be better on another text.
_NEAR = 0.95
# Drafts of a round that are looked at.
_DRAFTS = 16

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
        """What a round costs with this drafter, behind about so many tokens; None where it was not timed.

        `none` drafts nothing.
        """
        if drafter not in self.drafters and drafter != NONE:
            return None
        nearest = min(self.forward, key=lambda tokens: abs(tokens - context))
        times = self.drafters.get(drafter, DraftTimes(0.0, 0.0))
        return Price(self.forward[nearest], times.first_s, times.step_s, self.rest_s, acceptance=times.acceptance)

    def worth_trying(self, drafters: Sequence[str]) -> list[str]:
        """Those that may be the best of these: nearly so by what was measured, and faster than no drafts at all.

        As faster counts who would be if it failed half as often as was seen. What was not measured may be.
        """
        rates = {name: self._rate(price) for name in drafters if (price := self.price(name))}
        best = max(rates.values(), default=0.0)
        return [name for name in drafters if name not in rates or rates[name] >= max(_NEAR * best, 1e-12)]

    def _rate(self, price: Price) -> float:
        """Tokens a second at the best length; 0 where no length could beat plain decoding."""
        shares = [
            price.acceptance[min(place, len(price.acceptance) - 1)] for place in range(_DRAFTS) if price.acceptance
        ]
        hopeful = accumulate((1.0 - (1.0 - share) / 2.0 for share in shares), mul)
        if not best_length(list(hopeful), price.seconds)[0]:
            return 0.0
        expected: Iterator[float] = accumulate(accumulate(shares, mul))
        return max((1.0 + tokens) / price.seconds(count) for count, tokens in enumerate(expected, 1))
