"""What a rule costs the host: its own code, and waiting for the figures of distributions that it reads."""

import time
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from typing import TypeVar

from egag.delegating import DelegatingRule
from egag.draft_distribution import DraftDistribution, LogitsDistribution, Token
from egag.length_rule import GrowToGamma, LengthRule
from egag.tree_growth import TreeGrowth
from egag.truncation import Truncation
from utils.events import Round

Clock = Callable[[], float]
Reading = Callable[[frozenset[str], int], float]
_READS = 9
T = TypeVar("T")


class _Noted:
    """A distribution that notes which of its figures are read."""

    def __init__(self, distribution: DraftDistribution) -> None:
        self._distribution = distribution
        self.read: set[str] = set()

    @property
    def size(self) -> int:
        return self._distribution.size

    @property
    def entropy(self) -> float:
        self.read.add("entropy")
        return self._distribution.entropy

    @property
    def top(self) -> float:
        self.read.add("top")
        return self._distribution.top

    @property
    def acceptance(self) -> float | None:
        return self._distribution.acceptance

    def chance(self, token: Token) -> float:
        self.read.add("chance")
        return self._distribution.chance(token)


class TimedRule(DelegatingRule, Truncation):
    """A rule whose calls are timed. seconds: of its own code and of what it read.

    reading: seconds of reading these figures (entropy, top, chance) of a distribution of so many tokens. A trace holds
    the figures, and a run computes them from logits. clock: by default the processor's time of this thread, which
    other programs do not lengthen.
    """

    def __init__(self, rule: LengthRule, reading: Reading, clock: Clock = time.thread_time) -> None:
        self._rule, self.seconds = rule, 0.0
        self._reading, self._clock = reading, clock
        self._noted: tuple[DraftDistribution, _Noted] | None = None

    @property
    def rule(self) -> LengthRule:
        return self._rule

    def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
        return self._timed(distribution, lambda shown: self.rule.before(drafted, shown))

    def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
        return self._timed(distribution, lambda shown: self.rule.after(drafted, shown, token))

    def update(self, round: Round) -> None:
        self._timed(None, lambda shown: self.rule.update(round))

    @property
    def truncation(self) -> Truncation:
        return self

    def truncate(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        return self._timed(None, lambda shown: self.rule.truncation.truncate(chances, match, parents))

    @property
    def tree_growth(self) -> TreeGrowth:
        return GrowToGamma(self)

    def _timed(self, distribution: DraftDistribution | None, call: Callable[[DraftDistribution | None], T]) -> T:
        noted = None if distribution is None else self._of(distribution)
        known = frozenset(noted.read) if noted else frozenset[str]()
        start = self._clock()
        result = call(noted)
        self.seconds += self._clock() - start
        if noted and noted.read != known:
            size = noted.size
            self.seconds += self._reading(frozenset(noted.read), size) - (self._reading(known, size) if known else 0.0)
        return result

    def _of(self, distribution: DraftDistribution) -> _Noted:
        """The same one before and after a draft, whose figures are computed once."""
        if self._noted is None or self._noted[0] is not distribution:
            self._noted = distribution, _Noted(distribution)
        return self._noted[1]


@cache
def reading_s(figures: frozenset[str], size: int) -> float:
    """Seconds of computing these figures from logits on this machine's CPU: the median of a few times."""
    import torch

    logits, token, taken = torch.randn(size, generator=torch.Generator().manual_seed(0)), torch.tensor(0), list[float]()
    for _ in range(_READS):
        distribution = LogitsDistribution(logits)
        start = time.perf_counter()
        for name in sorted(figures):
            _ = distribution.chance(token) if name == "chance" else getattr(distribution, name)
        taken.append(time.perf_counter() - start)
    return median(taken)
