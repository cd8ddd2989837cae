"""Timing what a rejection costs on a target that saves states and reads accepted tokens again."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from egag.rollback_price import FREE, RollbackPrice
from sampling.forward.runner import WholeRunner

# A round of the root and four drafts, of which none or three are accepted.
_ROWS, _FEW, _MANY = 5, (), (0, 1, 2)

Timed = Callable[[Callable[[], object]], float]


class RollbackTimes:
    """The forward of a round behind a round with a rejection, over that behind a round that was accepted whole.

    Each turn times real rounds, one behind the other: the seconds of the second one are compared. Where a crop is all
    that a rejection needs, as the runner's cache tells, nothing is timed.
    """

    def __init__(self, runner: WholeRunner, ids: Sequence[int], context: int, timed: Timed) -> None:
        self._runner, self._context, self._timed = runner, context, timed
        self._first, self._second = ids[context : context + _ROWS], ids[context + _ROWS : context + 2 * _ROWS]
        self._restored: list[float] = []
        self._over: dict[int, list[float]] = {len(path) + 1: [] for path in (_FEW, _MANY)}

    @property
    def needed(self) -> bool:
        """Whether this target does more than a crop, and has room for two rounds."""
        cache = getattr(self._runner, "cache", None)
        works = getattr(cache, "rollback_s", 0.0) > 0.0 or getattr(cache, "reread", 0) > 0
        return works and self._context + 2 * _ROWS <= self._runner.window

    def settle(self) -> None:
        """Feed a token that stays behind the context, so that nothing is left to take back by the next forward."""
        self._runner.forward(self._first[:1])

    def turn(self) -> Iterator[bool]:
        """Pairs of rounds, one a step: accepted whole, three drafts accepted, none accepted; then one twice."""
        self._round()
        whole_s, saving_s = self._counted(self._behind)
        yield False
        for path in (_MANY, _FEW):
            self._round()
            self._runner.keep(self._context, path)
            self._over[len(path) + 1].append(self._behind() - whole_s)
            yield False
        self._round()
        self._restored.append(self._counted(self._round)[1] - saving_s)
        yield False

    def _counted(self, round: Callable[[], float]) -> tuple[float, float]:
        """Seconds of a round, and those of them that the cache counts as saving and restoring."""
        before = self._runner.cache.rollback_s  # type: ignore[attr-defined]
        return round(), self._runner.cache.rollback_s - before  # type: ignore[attr-defined]

    def _round(self) -> float:
        """A round at the context, whatever came behind it before: it may have to read all of the context again."""
        self._runner.crop(self._context)
        return self._timed(lambda: self._runner.forward(self._first))

    def _behind(self) -> float:
        """The next round."""
        return self._timed(lambda: self._runner.forward(self._second))

    @property
    def restoring_s(self) -> float:
        """What restoring takes of a forward right behind a crop, as the cache counts it; 0 where that was not timed."""
        return max(0.0, _usual(self._restored)) if self._restored else 0.0

    def price(self) -> RollbackPrice:
        """A line through what was timed, as medians over the turns; free where nothing was."""
        if not self._restored:
            return FREE
        (few, few_s), (many, many_s) = ((reread, _usual(over)) for reread, over in self._over.items())
        token_s = max(0.0, many_s - few_s) / (many - few)
        return RollbackPrice(max(0.0, (few_s + many_s - (few + many) * token_s) / 2), token_s)


def _usual(times: Sequence[float]) -> float:
    """The median, without the first one, which paid for first calls, where there are others."""
    return median(times[1:] or times)
