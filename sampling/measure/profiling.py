"""Measuring a profile: the target's forwards, and what each drafter of a pair costs and brings, in half a minute."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import TypeVar

import torch

from egag.controller import FixedGamma
from sampling.drafter import Drafter
from sampling.engine import Engine
from sampling.events import Event, Round
from sampling.forward.runner import PREFILL_CHUNK, WholeRunner, feed
from sampling.loop import decode
from sampling.lossy import RejectAllVerifier
from sampling.measure.shares import judged, shares
from sampling.methods import CHAIN, COPIERS, DRAFTERS, MODELS
from sampling.pair import Pair
from sampling.pair_engine import PairEngine, make_processor
from sampling.profile import CONTEXTS, NOTHING, ROWS, DraftTimes, Profile, Times
from sampling.profile_store import keep
from sampling.settings import Settings
from utils.errors import UserError
from utils.machine import BUSY_CORES, Machine
from utils.timing import PhaseClock

BUDGET_S = 30.0
_FORWARD_SHARE = 0.4
_NEARLY = 0.99
# Rows by which the others can be told, first: where the time is short they are what is known.
_FIRST = (1, 5, 2, 3, 9, 17, 32)
_TURNS, _PREFILLS = 12, 2
_TEXT_TOKENS = 32
_SHORT, _LONG, _COPIED, _LONG_TURNS = 1, 4, 10, 3

TEXTS = (
    "What makes the sky blue in the morning and red in the evening? Answer in two or three sentences.",
    "Correct the spelling and say nothing else: The old lighthouse keepr climbed the stairs, lit the lamp, and "
    "watched the old lighthouse lamp turn until the morning came.",
    "Write a Python function that returns the largest number in a list, without calling max.",
)
"""Of three kinds: an answer, a copy, code."""

T = TypeVar("T")
Tell = Callable[[float], None]
Measuring = Generator[float, None, Profile]


def measuring(pair: Pair, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.perf_counter) -> Measuring:
    """The profile of a pair, in steps of one forward or one round: yields the share of the budget that is spent.

    Time between two steps does not count, and the pair's own caches are left alone: whoever is in between may
    generate. With a short budget there are fewer repeats, then fewer rows and texts; the first forward is always timed.
    """
    forwards, drafts = _Forwards(pair), _Drafts(pair)
    spent = 0.0
    for steps, share in ((forwards.steps(), _FORWARD_SHARE), (drafts.steps(), 1.0)):
        while spent < share * budget_s or not forwards.enough:
            start = clock()
            over = next(steps, True)
            spent += clock() - start
            yield min(_NEARLY, spent / budget_s) if budget_s else _NEARLY
            if over:
                break
    yield 1.0
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    return Profile(forwards.forward(), forwards.prefill(), drafts.rest_s(), drafts.drafters(), measured)


def measure(pair: Pair, tell: Tell = lambda share: None, budget_s: float | None = None) -> Profile:
    """Measure now, in `BUDGET_S` or another number of seconds; Ctrl-C keeps nothing.

    Kept for later processes where the machine was quiet meanwhile.
    """
    with Machine() as machine:
        profile = finished(measuring(pair, BUDGET_S if budget_s is None else budget_s), tell)
    keep_quiet(pair, profile, machine)
    return profile


def finished(steps: Measuring, tell: Tell = lambda share: None) -> Profile:
    """What the steps that are left come to."""
    while True:
        try:
            tell(next(steps))
        except StopIteration as end:
            profile: Profile = end.value
            return profile


def keep_quiet(pair: Pair, profile: Profile, machine: Machine) -> bool:
    """Keep a profile that was measured while others left the machine free; whether it was kept."""
    quiet = machine.other_cores is not None and machine.other_cores <= BUSY_CORES
    return quiet and keep(pair, profile)


def ensure_profile(engine: Engine, tell: Tell = lambda share: None) -> None:
    """Measure what is not known, on an engine whose parts can be seen."""
    if isinstance(engine, PairEngine) and engine.profile() is None:
        engine.use_profile(measure(engine.pair, tell))


class _Forwards:
    """The target's forward over each number of rows behind each context, in turns over all of them."""

    def __init__(self, pair: Pair) -> None:
        window = pair.target.window
        rows = [count for count in ROWS if count < window] or [1]
        self._rows = sorted(rows, key=lambda count: (count not in _FIRST, _place(count)))
        room = max(1, window - rows[-1])
        self._runners: dict[int, WholeRunner] = {
            context: pair.target.another() for context in sorted({min(context, room) for context in CONTEXTS})
        }
        self._ids = list(islice(cycle(pair.encode(TEXTS, chat=False)), max(self._runners) + rows[-1]))
        self._source = getattr(pair.target.model, "source_window", window)
        self._clock = PhaseClock(pair.target.device)
        self._times: dict[tuple[int, int], list[float]] = {}

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
        for turn in range(1, _TURNS):
            for context in self._runners if turn < _PREFILLS else ():
                yield from self._prefill(context)
            for count in self._rows:
                for context in self._runners:
                    yield self._forward(context, count)

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
        runner.forward(ids[:1])  # untimed: the first one pays for first calls

    def _forward(self, context: int, count: int) -> bool:
        runner = self._runners[context]
        runner.crop(context)
        rows = self._ids[context : context + count]
        self._add(context, count, self._timed(lambda: runner.forward(rows))[1])
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
        """Medians; contexts that time was too short for are left out."""
        found = {
            context: tuple(
                (count, self._median(context, count)) for count in sorted(self._rows) if self._known(context, count)
            )
            for context in self._runners
        }
        return {context: times for context, times in found.items() if times}

    def prefill(self) -> Times:
        """By tokens of the prompt."""
        return tuple((context, self._median(context, 0)) for context in self._runners if self._known(context, 0))

    def _known(self, context: int, count: int) -> bool:
        return (context, count) in self._times

    def _median(self, context: int, count: int) -> float:
        """The first one paid for first calls: it counts where there is no other."""
        times = self._times[context, count]
        return median(times[1:] or times)


def _place(count: int) -> int:
    return _FIRST.index(count) if count in _FIRST else count


class _InTurn(FixedGamma):
    """A short draft, then long ones, in turn."""

    def __init__(self, long: int) -> None:
        super().__init__(_SHORT)
        self._lengths = cycle((*[long] * _LONG_TURNS, _SHORT))

    def update(self, round: Round) -> None:
        self.gamma = next(self._lengths)


@dataclass
class _Live:
    """One drafter that drafts at every place of the texts that the target says: what is accepted is read off the text.

    No draft passes, so that a round goes on by one token: the same texts tell several times as much as by rounds that
    pass over what they accept.
    """

    pair: Pair
    drafter: Drafter
    long: int
    rounds: list[Round] = field(default_factory=list)
    verdicts: list[tuple[int, int]] = field(default_factory=list)

    def steps(self) -> Iterator[None]:
        """A prefill or a round each."""
        for text in TEXTS:
            rounds: list[Round] = []
            for event in self._decode(text):
                if isinstance(event, Round):
                    self.rounds.append(event)
                    rounds.append(event)
                yield
            self.verdicts += judged(rounds)

    def _decode(self, text: str) -> Iterator[Event]:
        target = self.pair.target
        prompt = self.pair.encode([text], chat=True)[: max(1, target.window // 2)]
        return decode(
            target,
            self.drafter,
            _InTurn(self.long),
            RejectAllVerifier(),
            make_processor(Settings()["processor"]),
            prompt,
            max_new_tokens=_TEXT_TOKENS,
            stop=self.pair.stop,
            rng=torch.Generator(target.device).manual_seed(0),
        )

    def times(self) -> DraftTimes:
        """Medians over rounds; the first round paid for first calls."""
        rounds = self.rounds[1:] or self.rounds
        short = [round.draft_s for round in rounds if len(round.drafts) <= 1]
        first_s = median(short or [round.draft_s for round in rounds])
        steps = [(round.draft_s - first_s) / (len(round.drafts) - 1) for round in rounds if len(round.drafts) > 1]
        return DraftTimes(
            first_s,
            max(0.0, median(steps)) if steps else 0.0,
            shares(self.verdicts),
            sum(bool(round.drafts) for round in rounds) / len(rounds),
        )


class _Drafts:
    """Every drafter of a pair on the same texts, a round of each in turn; plain decoding is one of them."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._values = {**Settings(), **CHAIN}
        self._live: dict[str, _Live] = {}

    def steps(self) -> Iterator[bool]:
        """Rounds in turn, until every text is over."""
        names = (NOTHING, *MODELS, *COPIERS, "recycling")
        running = []
        for name in filter(self._can, names):
            if live := self._build(name):
                self._live[name] = live
                running.append(live.steps())
            yield False
        while running:
            for one in tuple(running):
                if next(one, True):
                    running.remove(one)
                yield False
        yield True

    def _can(self, name: str) -> bool:
        part = DRAFTERS[name]
        needed = part.needed(self._values)
        trees = part.drafts_trees(self._values) and not self._pair.target.model.trees
        return not trees and (needed is None or self._pair.has(needed))

    def _build(self, name: str) -> _Live | None:
        """A drafter with caches of its own; None for a head that fits no longer, which a method would refuse."""
        pair = self._pair.fresh()
        try:
            drafter: Drafter = DRAFTERS[name].build(pair, self._values)
        except UserError:
            return None
        return _Live(pair, drafter, _LONG if name in MODELS else _COPIED)

    def rest_s(self) -> float:
        """What a round of plain decoding costs beside its forward; 0 where time was too short to see one."""
        live = self._live.get(NOTHING)
        return median([round.other_s for round in live.rounds]) if live and live.rounds else 0.0

    def drafters(self) -> dict[str, DraftTimes]:
        """Of each drafter that made a round."""
        return {name: live.times() for name, live in self._live.items() if name != NOTHING and live.rounds}
