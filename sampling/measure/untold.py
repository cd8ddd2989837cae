"""What another engine's answer leaves unknown of a run."""

from utils.events import Acceptance

# What an engine tells of an answer as a whole, by the field of `Acceptance`, and what it never tells.
_TOLD = {
    "rounds": ("rounds", "tokens_per_round"),
    "drafted": ("drafted", "acceptance_rate"),
    "accepted": ("accepted", "acceptance_rate"),
    "hist": ("accept_hist",),
    "by_round": ("tested", "alpha", "tested_at", "tokens_by_round", "drafted_by_round"),
}
_NEVER_TOLD = ("prefill_s", "prefill_shared", "waited_s", "live_rows", "mean_gamma", "min_gamma", "max_gamma")


def untold(acceptance: Acceptance) -> frozenset[str]:
    """Names of the figures of a run that an answer with this acceptance does not tell."""
    lacking = (name for part, names in _TOLD.items() if getattr(acceptance, part) is None for name in names)
    return frozenset((*lacking, *_NEVER_TOLD))
