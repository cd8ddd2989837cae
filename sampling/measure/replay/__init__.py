"""Replay without a model: what drafters would have met at every position, and what any rule would have made of it."""

from sampling.measure.replay.bounds import BestFixed, best_fixed, oracle, placed
from sampling.measure.replay.fitted import fitted, in_batch, scaled
from sampling.measure.replay.replayed import replayed, rounds
from sampling.measure.replay.walk import DraftWalk, PositionDraft, Sample, walk

__all__ = [
    "BestFixed",
    "DraftWalk",
    "PositionDraft",
    "Sample",
    "best_fixed",
    "fitted",
    "in_batch",
    "oracle",
    "placed",
    "replayed",
    "rounds",
    "scaled",
    "walk",
]
