"""What drafters read of the pair that they are built on."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from sampling.forward.runner import Runners, WholeRunner
from sampling.heads.runner import HeadArithmetic
from sampling.pair.profile import LatencyProfile
from sampling.vocabularies.crossing import Crossing

T = TypeVar("T")
ArithmeticT = TypeVar("ArithmeticT", bound=HeadArithmetic)


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

    def kept_head(
        self, kind: str, forward: type[ArithmeticT], wanted: str, make: Callable[[ArithmeticT, bool], T]
    ) -> T: ...

    def drafting(self, wanted: str) -> Runners: ...
