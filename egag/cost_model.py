"""The cost of a round: the times that a rule compares with the expected tokens."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from egag.rollback_price import FREE, RollbackPrice, TakenBack


@dataclass(frozen=True, slots=True)
class CostModel:
    """The seconds of the parts of a round, for one drafter on one target.

    forward: (rows, seconds) of the target's forward, with ascending rows from 1. Between points it is linear; after the
    last point the last line continues. first_s: the first draft of a round. step_s: each further draft. rest_s: the
    rest of a round, with or without drafts. measured: False for assumed costs, whose ratios alone count. paid: for a
    hybrid, the most drafts of its model. Copies after them cost nothing. None: all drafts cost. acceptance: the
    acceptance rate of judged drafts at position 1, 2, ..., if measured. rollback: what taking tokens back costs after a
    rejection, which `seconds` leaves out.

    Example: forward ((1, 20.0), (3, 24.0)), first_s 5, step_s 3, rest_s 1 -> 2 drafts: 24 + 5 + 3 + 1 = 33.
    """

    forward: tuple[tuple[int, float], ...]
    first_s: float
    step_s: float
    rest_s: float = 0.0
    measured: bool = True
    paid: int | None = None
    acceptance: tuple[float, ...] = ()
    rollback: RollbackPrice = FREE

    def verify_s(self, drafts: float) -> float:
        """Seconds of the target's forward over the last token and `drafts` drafts."""
        rows = drafts + 1
        if len(self.forward) == 1:
            return self.forward[0][1]
        at = min(max(bisect_left(self.forward, (rows, 0.0)), 1), len(self.forward) - 1)
        (low, low_s), (high, high_s) = self.forward[at - 1], self.forward[at]
        return low_s + (high_s - low_s) * (rows - low) / (high - low)

    def draft_s(self, drafts: float) -> float:
        """Seconds of drafting `drafts` tokens. A mean below 1 still pays for one first draft per round."""
        drawn = drafts if self.paid is None else min(drafts, self.paid)
        return self.first_s + max(0.0, drawn - 1) * self.step_s if drafts else 0.0

    def seconds(self, drafts: float) -> float:
        """Seconds of a whole round with `drafts` drafts, or with that many on average, if nothing is taken back."""
        return self.verify_s(drafts) + self.draft_s(drafts) + self.rest_s

    def rollback_s(self, taken: TakenBack) -> float:
        """Seconds of taking tokens back after a round."""
        return self.rollback.seconds(taken)

    def among(self, sequences: int) -> "CostModel":
        """One sequence's share of a round of `sequences` sequences, each with the same number of drafts.

        One forward takes the rows of all sequences. Drafting time is assumed to grow with its rows as the target's
        forward does. The time spent per text stays the same, as that of taking tokens back does.

        Example: forward ((1, 20), (3, 24)) -> among 2: ((1, 11), (3, 15), ...), for 2 rows take 22 and 6 take 30.
        """
        if sequences == 1:
            return self
        forward = tuple((rows, self.verify_s(sequences * rows - 1) / sequences) for rows, _ in self.forward)
        share = self.v(sequences - 1) / sequences
        return replace(self, forward=forward, first_s=self.first_s * share, step_s=self.step_s * share)

    @property
    def c(self) -> float:
        """The cost coefficient c: a further draft over the target's forward of one row."""
        return self.step_s / self.verify_s(0)

    def v(self, drafts: int) -> float:
        """The forward over `drafts` drafts relative to that of one row."""
        return self.verify_s(drafts) / self.verify_s(0)


ASSUMED_COSTS = CostModel(((1, 1.0), (5, 1.25), (17, 2.0)), first_s=0.2, step_s=0.2, rest_s=0.05, measured=False)
"""Assumed costs in units of the target's forward, used without a measurement."""
