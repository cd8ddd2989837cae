"""Measuring a profile: the target's forwards, and what each drafter of a pair costs and brings, in half a minute."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import cycle
from statistics import median
from typing import Any

from egag.cost_model import CostModel
from egag.length_rule import FixedGamma
from sampling.drafter import Drafter
from sampling.engine import Engine
from sampling.loop import decode
from sampling.measure.times.forward_times import ForwardTimes
from sampling.measure.times.shares import judged, levels_of, shares, tokens_per_round
from sampling.methods.choices import make_processor
from sampling.methods.settings import Settings
from sampling.methods.tables import CHAIN, COPIERS, DRAFTERS, MODELS, TREE
from sampling.pair.local_engine import is_local
from sampling.pair.pair import Pair
from sampling.pair.profile import NOTHING, DraftTimes, LatencyProfile, TreeTimes
from sampling.pair.profile_store import keep
from sampling.verify.lossy import RejectAllVerifier
from sampling.verify.match import GreedyVerifier
from sampling.verify.verifier import Verifier
from utils.device.machine import BUSY_CORES, Machine
from utils.errors import UserError
from utils.events import Event, Round

BUDGET_S = 30.0
_FORWARD_SHARE = 0.4
_NEARLY = 0.99
_TEXT_TOKENS, _TREE_TEXTS = 20, 3
_CHAIN_SHARE = 0.9
_SHORT, _LONG, _COPIED, _LONG_TURNS = 1, 4, 10, 3
# Rounds of one drafter in a row: two short ones, with long ones between.
_IN_A_ROW = 8
_NODES = (2, 3, 4, 6, 8, 12)

TEXTS = (
    "What makes the sky blue in the morning and red in the evening? Answer in two or three sentences.",
    "Correct the spelling and say nothing else: The old lighthouse keepr climbed the stairs, lit the lamp, and "
    "watched the old lighthouse lamp turn until the morning came.",
    "Write a Python function that returns the largest number in a list, without calling max.",
    "Translate into French: The train to the coast leaves at nine, and we have packed two sandwiches each.",
    "Guests arrive in twenty minutes and my kitchen is a mess. What should I do first?",
    "A shop sells pens at 3 for 2 dollars. How much do 12 pens cost? Explain your steps.",
)
"""Of six kinds: an answer, a copy, code, a translation, advice, arithmetic."""

Tell = Callable[[float], None]
Measuring = Generator[float, None, LatencyProfile]


def measuring(pair: Pair, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.perf_counter) -> Measuring:
    """The profile of a pair, in steps of one forward or one round: yields the share of the budget that is spent.

    Time between two steps does not count, and the pair's own caches are left alone: whoever is in between may
    generate. With a short budget there are fewer repeats, then fewer rows and texts; the first forward is always timed.
    """
    forwards, drafts = ForwardTimes(pair, TEXTS), _Drafts(pair)
    spent = 0.0
    trees = drafts.tree_steps(lambda: _profile(forwards, drafts))
    for steps, share in ((forwards.steps(), _FORWARD_SHARE), (drafts.steps(), _CHAIN_SHARE), (trees, 1.0)):
        while spent < share * budget_s or not forwards.enough:
            start = clock()
            over = next(steps, True)
            spent += clock() - start
            yield min(_NEARLY, spent / budget_s) if budget_s else _NEARLY
            if over:
                break
    yield 1.0
    profile = _profile(forwards, drafts)
    return replace(profile, drafters=drafts.with_trees(profile))


def _profile(forwards: ForwardTimes, drafts: "_Drafts") -> LatencyProfile:
    """What was measured so far."""
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    return LatencyProfile(
        forward=forwards.forward(),
        prefill=forwards.prefill(),
        rest_s=drafts.rest_s(),
        drafters=drafts.drafters(),
        measured=measured,
        tree=forwards.tree(),
        rollback=forwards.rollback.price(),
    )


def measure(pair: Pair, tell: Tell = lambda share: None, budget_s: float | None = None) -> LatencyProfile:
    """Measure now, in `BUDGET_S` or another number of seconds; Ctrl-C keeps nothing.

    Kept for later processes where the machine was quiet meanwhile.
    """
    with Machine() as machine:
        profile = finished(measuring(pair, BUDGET_S if budget_s is None else budget_s), tell)
    keep_quiet(pair, profile, machine)
    return profile


def finished(steps: Measuring, tell: Tell = lambda share: None) -> LatencyProfile:
    """What the steps that are left come to."""
    while True:
        try:
            tell(next(steps))
        except StopIteration as end:
            profile: LatencyProfile = end.value
            return profile


def keep_quiet(pair: Pair, profile: LatencyProfile, machine: Machine) -> bool:
    """Keep a profile that was measured while others left the machine free; whether it was kept."""
    quiet = machine.other_cores is not None and machine.other_cores <= BUSY_CORES
    return quiet and keep(pair, profile)


def ensure_profile(engine: Engine, tell: Tell = lambda share: None) -> None:
    """Measure what is not known, on an engine whose parts can be seen."""
    if is_local(engine) and engine.profile() is None:
        engine.use_profile(measure(engine.pair, tell))


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
    verifier: Verifier
    texts: list[list[Round]] = field(default_factory=list)

    def steps(self) -> Iterator[None]:
        """A prefill or a round each."""
        for text in TEXTS:
            self.texts.append([])
            for event in self._decode(text):
                if isinstance(event, Round):
                    self.texts[-1].append(event)
                yield

    def _decode(self, text: str) -> Iterator[Event]:
        target = self.pair.target
        prompt = self.pair.encode([text], chat=True)[: max(1, target.window // 2)]
        return decode(
            target,
            self.drafter,
            _InTurn(self.long),
            self.verifier,
            make_processor(Settings()["processor"]),
            prompt,
            max_new_tokens=_TEXT_TOKENS,
            stop=self.pair.stop,
            seed=0,
        )

    @property
    def rounds(self) -> list[Round]:
        """Of all texts."""
        return [round for text in self.texts for round in text]

    def times(self) -> DraftTimes:
        """Medians over rounds; the first round paid for first calls."""
        rounds = self.rounds[1:] or self.rounds
        levels = [(levels_of(round), round.draft_s) for round in rounds]
        short = [took_s for count, took_s in levels if count <= 1]
        first_s = median(short or [took_s for _, took_s in levels])
        steps = [(took_s - first_s) / (count - 1) for count, took_s in levels if count > 1]
        return DraftTimes(
            first_s,
            max(0.0, median(steps)) if steps else 0.0,
            shares([verdict for text in self.texts for verdict in judged(text)]),
            sum(bool(round.drafts) for round in rounds) / len(rounds),
        )

    def best_rate(self, cost: CostModel, shapes: Iterable[tuple[int, int]], texts: int) -> float:
        """Tokens per second over the first texts, with drafts of the best of these shapes, (nodes, levels)."""
        return max(
            sum(tokens_per_round(text, nodes, levels) for text in self.texts[:texts])
            / (texts * (cost.verify_s(nodes) + cost.draft_s(levels) + cost.rest_s))
            for nodes, levels in shapes
        )


class _Drafts:
    """Every drafter of a pair on the same texts, some rounds of each in turn; plain decoding is one of them."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._values = {**Settings(), **CHAIN}
        self._live: dict[str, _Live] = {}
        self._trees: dict[str, _Live] = {}

    def steps(self) -> Iterator[bool]:
        """Rounds in turn, until every text is over."""
        names = (NOTHING, *MODELS, *COPIERS, "recycling", "logitspec")
        for name in filter(self._can, names):
            if live := self._build(name, self._values):
                self._live[name] = live
            yield False
        yield from _in_turn(self._live)

    def tree_steps(self, known: Callable[[], LatencyProfile]) -> Iterator[bool]:
        """Rounds of trees, of those heads that may be the best by what is known when this begins."""
        timed = [name for name in MODELS if name in self._live and self._live[name].rounds]
        values = {**self._values, **TREE}
        for name in known().worth_trying(timed):
            if (
                DRAFTERS[name].drafts_trees(values)
                and self._pair.target.model.trees
                and (live := self._build(name, values))
            ):
                self._trees[name] = live
            yield False
        yield from _in_turn(self._trees)

    def _can(self, name: str) -> bool:
        part = DRAFTERS[name]
        needed = part.needed(self._values)
        trees = part.drafts_trees(self._values) and not self._pair.target.model.trees
        return not trees and (needed is None or self._pair.has(needed))

    def _build(self, name: str, values: Mapping[str, Any]) -> _Live | None:
        """A drafter with caches of its own; None for a head that fits no longer, which a method would refuse."""
        pair = self._pair.fresh()
        try:
            drafter: Drafter = DRAFTERS[name].build(pair, values)
        except UserError:
            return None
        if name == NOTHING:  # as it is judged in use: to reject all costs more than to follow the target
            return _Live(pair, drafter, 0, GreedyVerifier())
        return _Live(pair, drafter, _LONG if name in MODELS else _COPIED, RejectAllVerifier())

    def rest_s(self) -> float:
        """What a round of plain decoding costs beside its forward; 0 where time was too short to see one."""
        live = self._live.get(NOTHING)
        return median([round.other_s for round in live.rounds]) if live and live.rounds else 0.0

    def drafters(self) -> dict[str, DraftTimes]:
        """Of each drafter that made a round."""
        return {name: live.times() for name, live in self._live.items() if name != NOTHING and live.rounds}

    def with_trees(self, profile: LatencyProfile) -> dict[str, DraftTimes]:
        """The drafters of a profile with what their trees bring, where those went over three texts and more."""
        times = dict(profile.drafters)
        for name, live in self._trees.items():
            chain = self._live[name]
            texts = sum(len(ours) == len(theirs) for ours, theirs in zip(live.texts, chain.texts, strict=False))
            if texts < _TREE_TEXTS:
                continue
            tree = live.times()
            times[name] = replace(times[name], tree=TreeTimes(tree.first_s, tree.step_s, 1.0))
            branched = replace(profile, drafters=times).cost_model(name, branched=True)
            chained = profile.cost_model(name)
            assert branched is not None and chained is not None
            shapes = [(nodes, levels) for levels in range(1, _LONG + 1) for nodes in _NODES if nodes >= levels]
            trees = live.best_rate(branched, shapes, texts)
            chains = chain.best_rate(chained, [(count, count) for count in range(1, _LONG + 1)], texts)
            times[name] = replace(times[name], tree=TreeTimes(tree.first_s, tree.step_s, trees / chains))
        return times


def _in_turn(drafters: Mapping[str, _Live]) -> Iterator[bool]:
    """The first prefill and round of each, then more and more rounds in a row of each, until every text is over."""
    running, steps = [live.steps() for live in drafters.values()], 2
    while running:
        for work in tuple(running):
            for _ in range(steps):
                over = next(work, True)
                yield False
                if over:
                    running.remove(work)
                    break
        steps = min(_IN_A_ROW, 2 * steps)
    yield True
