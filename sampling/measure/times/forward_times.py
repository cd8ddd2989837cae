"""Timing a target's forward: over each number of rows, behind each length of text."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, cycle, islice
from statistics import median
from typing import TypeVar

from sampling.forward.runner import PREFILL_CHUNK, WholeRunner, feed
from sampling.measure.times.rollback_times import RollbackTimes
from sampling.pair.pair import Pair
from sampling.pair.profile import CONTEXTS, ROWS, Times
from utils.device.timing import PhaseClock

# Rows by which the others can be told, first: where the time is short they are what is known.
_FIRST = (1, 5, 2, 3, 9, 17, 32)
_TURNS, _PREFILLS = 4, 2
# Forwards in a row over one number of rows, as rounds follow each other. The first one finds what others left.
_IN_A_ROW = 4
# Pairs of a chain and a tree, and of rounds with a rejection, in a turn.
_PAIRS = 3
# The first one pays for first calls: one more, so that a short time knows the price too.
_FIRST_ROLLBACKS = 2
# Two branches of four drafts, behind the root, and their rows.
_BRANCHES, _FORKED = (-1, 0, 1, 2, -1, 4, 5, 6), 9

T = TypeVar("T")


class ForwardTimes:
    """The target's forward over each number of rows behind each context, in turns over all of them."""

    def __init__(self, pair: Pair, texts: Sequence[str]) -> None:
        window = pair.target.window
        rows = [count for count in ROWS if count < window] or [1]
        self._rows = sorted(rows, key=lambda count: (count not in _FIRST, _place(count)))
        room = max(1, window - rows[-1])
        self._runners: dict[int, WholeRunner] = {
            context: pair.target.another() for context in sorted({min(context, room) for context in CONTEXTS})
        }
        self._ids = list(islice(cycle(pair.encode(texts, chat=False)), max(self._runners) + rows[-1]))
        self._source = getattr(pair.target.model, "source_window", window)
        self._clock = PhaseClock(pair.target.device)
        self._times: dict[tuple[int, int], list[float]] = {}
        self._forks: list[float] = []
        self._trees = pair.target.model.trees and _FORKED in rows
        self._rollbacks = {
            context: RollbackTimes(runner, self._ids, context, lambda call: self._timed(call)[1])
            for context, runner in self._runners.items()
        }

    @property
    def enough(self) -> bool:
        """Whether the first rows were timed."""
        return (min(self._runners), self._rows[0]) in self._times

    def steps(self) -> Iterator[bool]:
        """Turn after turn, a forward a step. The first goes context by context: short ones are sure to be timed."""
        for context in self._runners:
            yield from self._prefill(context)
            for count in self._rows:
                yield self._forward(context, count)
            for _ in range(_FIRST_ROLLBACKS):
                yield from self._rollback(context)
        for turn in range(1, _TURNS):
            for context in self._runners if turn < _PREFILLS else ():
                yield from self._prefill(context)
            for context in self._runners if self._trees else ():
                for _ in range(_PAIRS):
                    yield self._fork(context)
            for count in sorted(self._rows, key=lambda count: (count not in _FIRST, -count)):
                for context in self._runners:
                    for place in range(_IN_A_ROW):
                        yield self._forward(context, count, counts=place > 0)
            for _ in range(_PAIRS):
                yield from self._rollback(min(self._runners))

    def _rollback(self, context: int) -> Iterator[bool]:
        """Rejections, behind the shortest context: going back further than what was saved reads all of it again."""
        if context == min(self._runners) and self._rollbacks[context].needed:
            yield from self._rollbacks[context].turn()

    def _prefill(self, context: int) -> Iterator[bool]:
        """Read a prompt of so many tokens, a chunk a step; the text is then as long, whoever read it."""
        runner, ids = self._runners[context], self._ids[:context]
        reading, seconds = self._timed(lambda: runner.read(ids[: self._source]))
        *prompt, last = reading.tokens
        for start in range(0, len(prompt), PREFILL_CHUNK):
            chunk = prompt[start : start + PREFILL_CHUNK]
            seconds += self._timed(partial(runner.forward, chunk, rows=0))[1]
            yield False
        self._add(context, 0, seconds)
        feed(runner, [last, *ids][: context - runner.length])
        # Untimed: the first one pays for first calls. Two rows: before several, states are saved to go back to.
        runner.forward(self._ids[: min(2, len(self._rows))])

    def _forward(self, context: int, count: int, counts: bool = True) -> bool:
        """Over one row as in plain decoding, which takes nothing back."""
        runner, rollback = self._runners[context], self._rollbacks[context]
        runner.crop(context)
        if count == 1 and rollback.needed:
            rollback.settle()
        rows = self._ids[runner.length : runner.length + count]
        took_s = self._timed(lambda: runner.forward(rows))[1]
        if counts:
            self._add(context, count, took_s)
        return False

    def _fork(self, context: int) -> bool:
        """A tree's forward over that of the chain just before it, which the same things disturb."""
        runner, rows = self._runners[context], self._ids[context : context + _FORKED]
        took = []
        for parents in (None, _BRANCHES):
            runner.crop(context)
            took.append(self._timed(partial(runner.forward, rows, parents))[1])
        self._forks.append(took[1] / took[0])
        return False

    def _timed(self, call: Callable[[], T]) -> tuple[T, float]:
        """What a call comes to, and its seconds on the device."""
        self._clock.start()
        result = call()
        self._clock.lap("")
        return result, self._clock.stop()[""]

    def _add(self, context: int, count: int, seconds: float) -> None:
        self._times.setdefault((context, count), []).append(seconds)

    def forward(self) -> dict[int, Times]:
        """By context and rows, without contexts that time was too short for, behind which fewer rows were timed."""
        level = self._level()
        by_context = {
            context: never_dearer(
                [(n, self._priced(context, n, level)) for n in sorted(self._rows) if self._known(context, n)]
            )
            for context in self._runners
        }
        most = max(map(len, by_context.values()))
        return {context: times for context, times in by_context.items() if len(times) == most}

    def _priced(self, context: int, count: int, level: float) -> float:
        """A forward as behind a round that took nothing back, while those of several rows were timed behind a crop."""
        restoring_s = self.rollback.restoring_s
        took_s = level * self._took(context, count)
        if count == 1 or not restoring_s:
            return took_s
        return max(took_s - restoring_s, level * self._took(context, 1))

    @property
    def rollback(self) -> RollbackTimes:
        """What taking tokens back costs, behind the shortest context."""
        return self._rollbacks[min(self._runners)]

    def tree(self) -> float:
        """A tree's forward over a chain's, the median of all pairs; 1 where time was too short to tell."""
        return median(self._forks) if len(self._forks) > len(self._runners) else 1.0

    def prefill(self) -> Times:
        """By tokens of the prompt."""
        return tuple((context, self._took(context, 0)) for context in self._runners if self._known(context, 0))

    def _known(self, context: int, count: int) -> bool:
        return (context, count) in self._times

    def _level(self) -> float:
        """Usual times over undisturbed ones, of all forwards alike: runs are disturbed as often."""
        return median(median(times[1:] or times) / undisturbed(times) for times in self._times.values())

    def _took(self, context: int, count: int) -> float:
        return undisturbed(self._times[context, count])


def undisturbed(times: Sequence[float]) -> float:
    """The lower quartile: whatever else a machine does adds time and takes none off.

    The first one paid for first calls: it counts where there is no other.
    """
    after = sorted(times[1:] or times)
    return after[(len(after) - 1) // 4]


def never_dearer(times: Sequence[tuple[int, float]]) -> Times:
    """(rows, seconds) with no row count priced above a larger one, since a forward can always be padded.

    Example: 1 row 20.0, 2 rows 27.0, 3 rows 21.0 -> (1, 20.0), (2, 21.0), (3, 21.0).
    """
    most = accumulate((seconds for _, seconds in reversed(times)), min)
    return tuple(reversed([(rows, seconds) for (rows, _), seconds in zip(reversed(times), most, strict=True)]))


def _place(count: int) -> int:
    return _FIRST.index(count) if count in _FIRST else count
