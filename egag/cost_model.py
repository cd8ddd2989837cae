"""What a round costs: the times that a rule weighs against the tokens that it expects."""

from bisect import bisect_left
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of the parts of a round, for one drafter on one target.

    forward: (rows, seconds) of the target's forward, rows ascending, from one row on; between them on a line, behind
    the last one along the last line. first_s: the first draft of a round, step_s: each further one. rest_s: what a
    round costs besides, without drafts as well. measured: False where nobody has measured, and only ratios count.
    paid: of a hybrid, how many drafts its model draws at most; those behind are copies and cost nothing. None: all.
    acceptance: the share of drafts that were accepted of those judged at position 1, 2, ..., where that was measured.

    Example: forward ((1, 20.0), (3, 24.0)), first_s 5, step_s 3, rest_s 1 -> 2 drafts: 24 + 5 + 3 + 1 = 33.
    """

    forward: tuple[tuple[int, float], ...]
    first_s: float
    step_s: float
    rest_s: float = 0.0
    measured: bool = True
    paid: int | None = None
    acceptance: tuple[float, ...] = ()

    def verify_s(self, drafts: float) -> float:
        """The target's forward over the last token and so many drafts."""
        rows = drafts + 1
        if len(self.forward) == 1:
            return self.forward[0][1]
        at = min(max(bisect_left(self.forward, (rows, 0.0)), 1), len(self.forward) - 1)
        (low, low_s), (high, high_s) = self.forward[at - 1], self.forward[at]
        return low_s + (high_s - low_s) * (rows - low) / (high - low)

    def draft_s(self, drafts: float) -> float:
        """Drafting so many tokens; a mean below 1 still looked for a first one in every round."""
        drawn = drafts if self.paid is None else min(drafts, self.paid)
        return self.first_s + max(0.0, drawn - 1) * self.step_s if drafts else 0.0

    def seconds(self, drafts: float) -> float:
        """A whole round with so many drafts, or with so many on average."""
        return self.verify_s(drafts) + self.draft_s(drafts) + self.rest_s

    def among(self, sequences: int) -> "CostModel":
        """One sequence's share of a round that so many play together, with as many drafts each.

        A forward takes the rows of all. Drafting is thought to grow with its rows as the target's forward does; what
        is done for each text by itself stays.

        Example: forward ((1, 20), (3, 24)) -> among 2: ((1, 11), (3, 15), ...), for 2 rows take 22 and 6 take 30.
        """
        if sequences == 1:
            return self
        forward = tuple((rows, self.verify_s(sequences * rows - 1) / sequences) for rows, _ in self.forward)
        share = self.v(sequences - 1) / sequences
        return replace(self, forward=forward, first_s=self.first_s * share, step_s=self.step_s * share)

    @property
    def c(self) -> float:
        """A further draft over the target's forward of one row."""
        return self.step_s / self.verify_s(0)

    def v(self, drafts: int) -> float:
        """The forward over so many drafts over that of one row."""
        return self.verify_s(drafts) / self.verify_s(0)


ASSUMED_COSTS = CostModel(((1, 1.0), (5, 1.25), (17, 2.0)), first_s=0.2, step_s=0.2, rest_s=0.05, measured=False)
"""In forwards of the target: what rules go by until somebody has measured."""
