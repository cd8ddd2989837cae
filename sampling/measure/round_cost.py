"""Why a method is as fast as it is: what its rounds cost, and how many tokens a round they would have to bring."""

from dataclasses import dataclass
from typing import Protocol

# In forwards: less is what the clock cannot tell.
_SEEN = 0.02


class RoundTimes(Protocol):
    """What is asked of a run: counts, and mean times of a round in ms; None is unknown."""

    @property
    def rounds(self) -> int | None: ...
    @property
    def drafted(self) -> int | None: ...
    @property
    def draft_ms(self) -> float | None: ...
    @property
    def verify_ms(self) -> float | None: ...
    @property
    def other_ms(self) -> float | None: ...
    @property
    def tokens_per_round(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class RoundCost:
    """A round's cost, in forwards of plain autoregression (AR): one row through the same target.

    rows: what the target verifies in a round, the last token and the drafts. draft, verify, other: time for drafting,
    for the target's forward (v(n), 1 where more rows cost nothing), for the rest. reference: AR's own round, its
    forward (1) and its rest. tokens: what a round emits. From it follows, as in arXiv 2211.17192 but with the costs
    as they were measured, speedup = tokens * reference / (draft + verify + other).

    Example: draft 0.24, verify 1.31, other 0.02, reference 1.01 and 1.22 tokens: break-even 1.554, speedup 0.785.
    """

    rows: float
    draft: float
    verify: float
    other: float
    reference: float
    tokens: float

    @property
    def break_even(self) -> float:
        """Tokens a round at which it is as fast as AR: what its round takes in rounds of AR."""
        return (self.draft + self.verify + self.other) / self.reference

    @property
    def speedup(self) -> float:
        """Tokens a second over AR's."""
        return self.tokens / self.break_even

    def __str__(self) -> str:
        extra = self.other - (self.reference - 1.0)
        rest = f", the rest {extra:.2f} more than AR's" if extra > _SEEN else ""
        return (
            f"drafts cost {self.draft:.0%} of AR's forward a round, verifying {self.rows:.1f} rows {self.verify:.2f} "
            f"of it{rest}; break-even needs {self.break_even:.2f} tokens a round, it had {self.tokens:.2f}"
        )


def round_cost(run: RoundTimes, reference: RoundTimes) -> RoundCost | None:
    """The cost of a run's rounds against AR on the same prompt; None where either is unknown or made no round."""
    own = (run.draft_ms, run.verify_ms, run.other_ms, run.tokens_per_round)
    plain = (reference.draft_ms, reference.verify_ms, reference.other_ms)
    if None in own or None in plain or not run.rounds or not reference.verify_ms:
        return None
    draft, verify, other, tokens = (value or 0.0 for value in own)
    forward = reference.verify_ms
    return RoundCost(
        rows=1.0 + (run.drafted or 0) / run.rounds,
        draft=draft / forward,
        verify=verify / forward,
        other=other / forward,
        reference=sum(value or 0.0 for value in plain) / forward,
        tokens=tokens,
    )
