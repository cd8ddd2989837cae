"""A threshold that follows the share of drafts that are accepted, as Draft & Verify and AdaEDL move theirs."""

_KEPT, _WANTED, _STEP, _INERTIA = 0.5, 0.9, 0.01, 0.9


class AdaptiveThreshold:
    """Rises while fewer drafts are accepted than wanted, so that drafting stops earlier, and falls while enough are.

    After a round: r = 0.5 r + 0.5 share; t' = t + 0.01 where r < 0.9, t where it is held, else t - 0.01;
    t = 0.9 t + 0.1 t'. r begins at 0, as in the code of Draft & Verify.

    Example: t 0.7, shares 0.5 and 1 -> r 0.25 and 0.625, t 0.701 and 0.702.
    """

    def __init__(self, first: float) -> None:
        self.value, self.rate = first, 0.0

    def learn(self, share: float, hold: bool) -> None:
        """From the share of a round's drafts that were accepted. hold: the threshold is not lowered by this round."""
        self.rate = _KEPT * self.rate + (1 - _KEPT) * share
        step = _STEP if self.rate < _WANTED else 0.0 if hold else -_STEP
        self.value = _INERTIA * self.value + (1 - _INERTIA) * (self.value + step)
