"""What drafters read of the pair that they are built on."""

from typing import Protocol

from sampling.forward.runner import Runners, WholeRunner
from sampling.heads.head_files import Head
from sampling.pair.profile import LatencyProfile
from sampling.vocabularies.crossing import Crossing


class DraftingPair(Protocol):
    """A target and what drafts for it: see `sampling.pair.pair.Pair`."""

    @property
    def target(self) -> WholeRunner: ...

    @property
    def cached(self) -> bool: ...

    @property
    def crossing(self) -> Crossing | None: ...

    @property
    def profile(self) -> LatencyProfile | None: ...

    @property
    def of_drafter(self) -> "DraftingPair": ...

    def has(self, drafter: str) -> bool: ...

    def head(self, kind: str) -> Head: ...

    def drafting(self, wanted: str) -> Runners: ...

    def drafts_in_int8(self, drafter: str, wanted: str) -> bool: ...
