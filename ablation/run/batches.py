"""Plays a plan in batches: every configuration answers all prompts of a pass, so many of them at a time."""

import logging
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ablation.plan.grid import Configuration, Key, Load, Pass, Place, Plan, rotated
from ablation.plan.prompt_file import Prompt
from ablation.results.record import Record, make_record
from ablation.run.dialogue import Dialogue
from ablation.run.execute import Done, Unwatched, Watcher, known_lossless
from sampling.arguments import check_room
from sampling.engine import Engine, Text, in_formats
from sampling.measure.comparison import Comparison
from sampling.measure.metrics import RunMetrics
from sampling.methods import REFERENCE
from utils.errors import UserError
from utils.events import Answered, Event, Failed, Finished, Prefilled, Round
from utils.machine import Machine
from utils.memory import reset_peak_memory
from utils.parameter import Chosen

_log = logging.getLogger(__name__)


def execute_batches(
    engine: Engine, plan: Plan, watcher: Watcher | None = None, done: Mapping[Key, Done] | None = None
) -> Iterator[list[Record]]:
    """The records of a plan, those of one configuration, batch, format and pass at once when all are answered.

    At each load the reference goes first, and what follows is compared with it there; the others follow in
    an order that rotates from pass to pass. Each begins without memory of earlier prompts. Batches that are `done` are
    not played again; where others of their load are missing, the reference is, so that those are compared with the
    machine as it is now.
    """
    done, watching, lossless = done or {}, watcher or Unwatched(), known_lossless(engine, plan)
    engines = in_formats(engine, plan.formats)
    for number, one in enumerate(plan.passes()):
        for load in plan.loads:
            compared: dict[str, _Comparisons] = {weights: {} for weights in engines}
            units = [
                _Unit(each, weights, plan, one, load, configuration, watching, lossless, compared[weights])
                for configuration in plan.order(number)
                for weights, each in rotated(tuple(engines.items()), number)
            ]
            missing = {unit.weights for unit in units if not unit.done(done)}
            for unit in units:
                there = unit.done(done)
                if there and (unit.configuration.name != REFERENCE or unit.weights not in missing):
                    continue
                records = unit.play()
                if not there:
                    yield records


_Comparisons = dict[tuple[str | int, int], Comparison]


@dataclass(slots=True)
class _Unit:
    """One configuration on all prompts of a pass, at one load.

    compared: what the reference did there on each prompt and turn.
    """

    engine: Engine
    weights: str
    plan: Plan
    one: Pass
    load: Load
    configuration: Configuration
    watcher: Watcher
    lossless: Mapping[tuple[Configuration, Chosen], bool | None]
    compared: _Comparisons
    accounts: dict[Key, RunMetrics] = field(default_factory=dict)
    errors: dict[Key, str] = field(default_factory=dict)
    prompts: dict[Key, list[int]] = field(default_factory=dict)
    arrivals: dict[Key, float] = field(default_factory=dict)
    rounds_s: float = 0.0
    prefills_s: float = 0.0
    begun: float | None = None
    seconds: float = 0.0

    def places(self) -> Iterator[Place]:
        """All its generations, in the order of the plan."""
        for _, prompt in self.plan.played(self.one):
            for turn in range(1, len(prompt.turns) + 1):
                yield self._place(prompt, turn)

    def done(self, done: Mapping[Key, Done]) -> bool:
        """Whether all of it is there."""
        return all(place.key in done for place in self.places())

    def play(self) -> list[Record]:
        """Answer all prompts; what goes wrong with one is its record's error."""
        self.watcher.begin(next(self.places()))
        reset_peak_memory(self.engine.describe().device)
        with Machine() as machine:
            self._answer()
        return [self._record(place, machine) for place in self.places()]

    def _place(self, prompt: Prompt, turn: int) -> Place:
        one, lossless = self.one, self.lossless[self.configuration, self.one.processor]
        return Place(
            *(prompt, turn, self.configuration, one.processor, one.seed, one.repeat, lossless, self.weights, self.load),
            engine=self.plan.engine,
        )

    def _values(self, prompt: Prompt) -> dict[str, Any]:
        values = {"processor": self.one.processor, "seed": self.one.seed, "length": self.plan.length(prompt)}
        return {**self.plan.values, **values, **dict(self.configuration.parameters)}

    def _answer(self) -> None:
        """Play all rounds; the next turn of a conversation is asked for once the one before is answered."""
        name, method = self.configuration.name, self.configuration.method
        waiting = _Waiting(self)
        try:
            values, run = self._values(self.plan.prompts[0]), f"{name}, {self.load.text}"
            for place, event in self.engine.stream_many(method, values, waiting, self.load.batch, run):
                if isinstance(event, Failed):
                    waiting.lost(place, event.error)
                    continue
                self._add(place, event)
                if isinstance(event, Finished | Answered):
                    waiting.answered(place)
                    self.watcher.ended(place)
        except UserError as error:
            waiting.fail(str(error))
        except Exception as error:  # out of memory, or a bug: other batches are still worth having
            _log.exception("%s, %s, failed", name, self.load.text)
            waiting.fail(f"{type(error).__name__}: {error}")
        self.seconds = time.perf_counter() - (self.begun or 0.0)

    def _add(self, place: Place, event: Event) -> None:
        self.accounts[place.key].add(event)
        if isinstance(event, Prefilled):
            self.prefills_s += event.prefill_s
        elif isinstance(event, Round):
            self.rounds_s += (event.draft_s + event.verify_s + event.other_s) / event.live
            self.watcher.round(place, event)

    def _record(self, place: Place, machine: Machine) -> Record:
        key, parameters = place.key, dict(self.configuration.parameters)
        base = {name: value for name, value in self._values(place.prompt).items() if name not in parameters}
        values = {**self.plan.values, **base}
        comparison = self.compared.setdefault((place.prompt.id, place.turn), Comparison(self.engine, values))
        if key in self.errors:
            return make_record(comparison, place, machine, self.errors[key])
        comparison.add(
            self.configuration.name,
            self.prompts[key],
            self.accounts[key],
            method=self.configuration.method,
            parameters=parameters,
        )
        return replace(make_record(comparison, place, machine, None), **self._in_all())

    def _in_all(self) -> dict[str, Any]:
        """What all texts come to, by the names of a record."""
        whole = {key: one for key, one in self.accounts.items() if key not in self.errors}
        ends = [self.arrivals[key] + one.queued_s + one.wall_s for key, one in whole.items() if key in self.arrivals]
        tokens = sum(one.new_tokens for one in whole.values())
        foreign = any(one.answered for one in whole.values())  # of another engine only the time in all is known
        time_s = max(ends, default=self.seconds if foreign else self.rounds_s + self.prefills_s)
        if not (foreign or self.rounds_s):
            return {}
        found = {"e2e_throughput_tps": tokens / time_s}
        if self.rounds_s:
            found["throughput_tps"] = tokens / self.rounds_s
        if slo := self.plan.slo:
            met = sum(slo.met((one.queued_s + one.ttft_s) * 1e3, one.tpot_ms) for one in whole.values())
            found["goodput_rps"] = met / time_s
        return found


class _Waiting:
    """The prompts that are to be answered next: it is empty while those under way may bring more."""

    def __init__(self, unit: _Unit) -> None:
        self._unit = unit
        prompts = [prompt for _, prompt in unit.plan.played(unit.one)]
        self._dialogues = {prompt.id: Dialogue() for prompt in prompts}
        self._next = deque(unit._place(prompt, 1) for prompt in prompts)
        self._chance, self._arrived_s = random.Random(f"{unit.one.seed} {unit.load.rate}"), 0.0

    def __iter__(self) -> "_Waiting":
        return self

    def __next__(self) -> Text:
        while self._next:
            place = self._next.popleft()
            try:
                return self._text(place)
            except UserError as error:
                self.lost(place, str(error))
        raise StopIteration

    def answered(self, place: Place) -> None:
        """Ask for the next turn of a conversation."""
        unit = self._unit
        text = unit.engine.text(unit.accounts[place.key].output_ids)
        self._dialogues[place.prompt.id].answered(unit.configuration.name, text)
        if place.turn < len(place.prompt.turns):
            self._next.append(unit._place(place.prompt, place.turn + 1))

    def fail(self, error: str) -> None:
        """Nothing more will be answered."""
        for place in self._unit.places():
            account = self._unit.accounts.get(place.key)
            if account is None or account.finish_reason is None:
                self._unit.errors.setdefault(place.key, error)

    def _text(self, place: Place) -> Text:
        """A prompt as it is asked. Raises `UserError` for one that cannot be. The first one starts the clock."""
        unit, prompt = self._unit, place.prompt
        dialogue, values = self._dialogues[prompt.id], unit._values(prompt)
        dialogue.begin(prompt.turns[place.turn - 1], prompt.before(place.turn))
        ids = unit.engine.tokenise(dialogue.heard(unit.configuration.name), values["chat"], prompt.system)
        check_room(unit.engine.describe(), ids, values["length"])
        unit.accounts[place.key], unit.prompts[place.key] = RunMetrics(), list(ids)
        unit.watcher.prompted(place, unit.engine, values, ids)
        if unit.load.rate is not None and place.turn == 1:
            self._arrived_s += self._chance.expovariate(unit.load.rate)
            unit.arrivals[place.key] = self._arrived_s
        unit.begun = unit.begun or time.perf_counter()
        return Text(place, ids, values["length"], unit.arrivals.get(place.key))

    def lost(self, place: Place, error: str) -> None:
        """A conversation that cannot go on."""
        for turn in range(place.turn, len(place.prompt.turns) + 1):
            self._unit.errors[self._unit._place(place.prompt, turn).key] = error
