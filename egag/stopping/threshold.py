"""A threshold that follows the acceptance rate, as in Draft & Verify and AdaEDL."""

_KEPT, _WANTED, _STEP, _INERTIA = 0.5, 0.9, 0.01, 0.9


class AdaptiveThreshold:
    """Rises while the acceptance rate is too low, so that drafting stops earlier, and falls while it is high enough.

    After a round: r = 0.5 r + 0.5 share; t' = t + 0.01 if r < 0.9, t if it is held, else t - 0.01; t = 0.9 t + 0.1 t'.
    r starts at 0, as in the code of Draft & Verify.

    Example: t 0.7, shares 0.5 and 1 -> r 0.25 and 0.625, t 0.701 and 0.702.
    """

    def __init__(self, first: float) -> None:
        self.value, self.rate = first, 0.0

    def learn(self, share: float, hold: bool) -> None:
        """Learn from the accepted share of a round's drafts. hold: this round does not lower the threshold."""
        self.rate = _KEPT * self.rate + (1 - _KEPT) * share
        step = _STEP if self.rate < _WANTED else 0.0 if hold else -_STEP
        self.value = _INERTIA * self.value + (1 - _INERTIA) * (self.value + step)
