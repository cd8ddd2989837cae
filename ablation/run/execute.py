"""Plays a plan on one engine, interleaved, and yields a record for each generation as soon as it is known."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Protocol

from ablation.plan.grid import Configuration, Key, Pass, Place, Plan, rotated
from ablation.plan.prompt_file import Prompt
from ablation.results.record import Record, make_record
from ablation.run.dialogue import Dialogue
from sampling.engine import Engine, in_formats
from sampling.measure.comparison import Comparison
from sampling.methods import METHODS, REFERENCE
from utils.errors import UserError
from utils.events import Round
from utils.machine import Machine
from utils.memory import reset_peak_memory
from utils.parameter import Chosen, Values

_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Is told what happens, always outside the measured time."""

    def begin(self, place: Place) -> None: ...

    def prompted(self, place: Place, engine: Engine, values: Values, ids: Sequence[int]) -> None: ...

    def round(self, place: Place, round: Round) -> None: ...

    def ended(self, place: Place) -> None: ...


class Unwatched:
    """Nobody looks."""

    def begin(self, place: Place) -> None:
        """A generation starts."""

    def prompted(self, place: Place, engine: Engine, values: Values, ids: Sequence[int]) -> None:
        """What it goes by is known: every setting, and the prompt's ids."""

    def round(self, place: Place, round: Round) -> None:
        """A round is over."""

    def ended(self, place: Place) -> None:
        """A text of a batch is whole."""


@dataclass(frozen=True, slots=True)
class Done:
    """What an earlier run left of a generation: its text, or its error."""

    text: str
    error: str | None = None


def execute(
    engine: Engine, plan: Plan, watcher: Watcher | None = None, done: Mapping[Key, Done] | None = None
) -> Iterator[Record]:
    """The records of a plan, each as soon as its generation is over.

    On each prompt the reference goes first and the others follow in a rotating order; formats of the target's
    weights take turns at every step, each compared with its own reference. Each pass over the
    prompts starts without memory of earlier ones. A generation that fails leaves a record with its error.
    `done` generations are not yielded; where others of their prompt are missing, the reference runs again,
    so that those are compared with the machine as it is now; and what remembers earlier prompts runs again
    on them.
    """
    done, lossless = done or {}, known_lossless(engine, plan)
    engines = in_formats(engine, plan.formats)
    for number, one in enumerate(plan.passes()):
        if all(place.key in done for place in plan.places(one, tuple(engines))):
            continue
        for each in engines.values():
            each.forget()
        played = [
            [
                _Conversation(each, weights, plan, prompt, one, watcher or Unwatched(), done, lossless).play(
                    plan.order(number + (index if plan.in_turn else 0))
                )
                for weights, each in rotated(tuple(engines.items()), index + number)
            ]
            for index, prompt in plan.played(one)
        ]
        for conversations in played if plan.in_turn else [list(chain(*played))]:
            yield from _in_turn(conversations)


def _in_turn(several: Iterable[Iterator[Record | None]]) -> Iterator[Record]:
    """One of each in turn until all are at their end, none before it is asked for; None is one that is there.

    Example: (a, b) and (c, d, e) -> a, c, b, d, e.
    """
    waiting = deque(several)
    while waiting:
        first = waiting.popleft()
        for record in islice(first, 1):
            waiting.append(first)
            if record is not None:
                yield record


def known_lossless(engine: Engine, plan: Plan) -> dict[tuple[Configuration, Chosen], bool | None]:
    """Whether each configuration keeps the target's distribution under each processor; None for another output."""
    found: dict[tuple[Configuration, Chosen], bool | None] = {}
    for configuration in plan.configurations:
        for processor in plan.processors:
            values = {**plan.values, "processor": processor, **dict(configuration.parameters)}
            other = METHODS[configuration.method].other
            found[configuration, processor] = engine.lossless(configuration.method, values) if other is None else None
    return found


@dataclass(slots=True)
class _Conversation:
    """The turns of one prompt in one pass and format; each configuration continues what it said itself."""

    engine: Engine
    weights: str
    plan: Plan
    prompt: Prompt
    one: Pass
    watcher: Watcher
    done: Mapping[Key, Done]
    lossless: Mapping[tuple[Configuration, Chosen], bool | None]
    dialogue: Dialogue = field(default_factory=Dialogue)
    errors: dict[str, str] = field(default_factory=dict)

    def play(self, order: tuple[Configuration, ...]) -> Iterator[Record | None]:
        """Its records in this order, None for one that is there already."""
        values = {
            **self.plan.values,
            "processor": self.one.processor,
            "seed": self.one.seed,
            "length": self.plan.length(self.prompt),
        }
        for turn, text in enumerate(self.prompt.turns, start=1):
            comparison = Comparison(self.engine, values)
            self.dialogue.begin(text, self.prompt.before(turn))
            places = [self._place(turn, configuration) for configuration in order]
            missing = any(place.key not in self.done for place in places)
            for place in places:
                earlier = self.done.get(place.key)
                if earlier is None:
                    yield self._record(comparison, place)
                elif self._remembers(place) or (missing and place.configuration.name == REFERENCE):
                    self._answer(comparison, place, Unwatched())
                    yield None
                else:
                    self._remember(place, earlier)
                    yield None

    def _place(self, turn: int, configuration: Configuration) -> Place:
        one, lossless = self.one, self.lossless[configuration, self.one.processor]
        place = Place(self.prompt, turn, configuration, one.processor, one.seed, one.repeat, lossless, self.weights)
        return replace(place, engine=self.plan.engine)

    def _remembers(self, place: Place) -> bool:
        return METHODS[place.method].remembers({**self.plan.values, **dict(place.configuration.parameters)})

    def _record(self, comparison: Comparison, place: Place) -> Record:
        self.watcher.begin(place)
        with Machine() as machine:
            self._answer(comparison, place, self.watcher)
        return make_record(comparison, place, machine, self.errors.get(place.configuration.name))

    def _answer(self, comparison: Comparison, place: Place, watcher: Watcher) -> None:
        """One generation; once a configuration has failed, its conversation has no next turn."""
        name = place.configuration.name
        if name in self.errors:
            return
        reset_peak_memory(self.engine.describe().device)
        for round in self._rounds(comparison, place, watcher):
            watcher.round(place, round)
        if name not in self.errors:
            self.dialogue.answered(name, self.engine.text(comparison.metrics[name].output_ids))

    def _rounds(self, comparison: Comparison, place: Place, watcher: Watcher) -> Iterator[Round]:
        """The rounds of a generation; what goes wrong in it, and not in their reader, ends up in `errors`."""
        name, parameters = place.configuration.name, dict(place.configuration.parameters)
        try:
            ids = self.engine.tokenise(self.dialogue.heard(name), comparison.values["chat"], self.prompt.system)
            watcher.prompted(place, self.engine, {**comparison.values, **parameters}, ids)
            for event, _ in comparison.run(name, ids, method=place.method, parameters=parameters):
                if isinstance(event, Round):
                    yield event
        except UserError as error:
            self.errors[name] = str(error)
        except Exception as error:  # out of memory, or a bug: the other generations are still worth having
            _log.exception("prompt %s, turn %d: %s failed", place.prompt.id, place.turn, name)
            self.errors[name] = f"{type(error).__name__}: {error}"

    def _remember(self, place: Place, earlier: Done) -> None:
        name = place.configuration.name
        self.dialogue.answered(name, earlier.text)
        if earlier.error is not None:
            self.errors.setdefault(name, earlier.error)
