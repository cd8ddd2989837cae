"""Plays prompts with methods on one engine, interleaved, and yields a record for each."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.prompt_file import Prompt
from ablation.record import Record, make_record
from sampling.comparison import Comparison
from sampling.engine import Engine
from sampling.events import Step
from utils.errors import UserError
from utils.memory import reset_peak_memory

_log = logging.getLogger(__name__)

WARM_UP = "Seven grey herons stood in the shallow water and waited for the tide to turn."
_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: every method on every prompt, `repeats` times, with these values of the settings."""

    prompts: tuple[Prompt, ...]
    methods: tuple[str, ...]
    values: Mapping[str, Any]
    repeats: int = 1

    @property
    def generations(self) -> int:
        """How many records a whole run yields."""
        return sum(len(prompt.turns) for prompt in self.prompts) * len(self.methods) * self.repeats


@dataclass(frozen=True, slots=True)
class Place:
    """Which generation a round belongs to. turn counts from 1, repeat from 0."""

    prompt: Prompt
    turn: int
    repeat: int
    method: str


OnStep = Callable[[Place, Step], None]


def warm_up(engine: Engine, plan: Plan) -> None:
    """One unmeasured generation a method, on a sentence that is no measured prompt; leaves no memory.

    Raises `UserError` when a method cannot run on this pair at all.
    """
    values = {**plan.values, "length": _WARM_UP_TOKENS}
    prompt = engine.pair.encode([WARM_UP], plan.values["chat"])[: engine.pair.target.window // 2]
    for method in plan.methods:
        for _ in engine.stream(method, values, prompt):
            pass
    engine.forget()


def execute(engine: Engine, plan: Plan, on_step: OnStep = lambda place, step: None) -> Iterator[list[Record]]:
    """The records of each turn of each prompt, once all methods have answered it, in the plan's order.

    Repeats are the outer loop, and the order of the methods rotates with prompt and repeat, so that no
    method always runs on the machine state that another one left. Every repeat starts without memory of
    earlier prompts. A generation that fails leaves a record with its error; a `KeyboardInterrupt` is
    raised again after the records of the methods that were done.
    """
    for repeat in range(plan.repeats):
        engine.forget()
        for index, prompt in enumerate(plan.prompts):
            shift = (index + repeat) % len(plan.methods)
            order = (*plan.methods[shift:], *plan.methods[:shift])
            yield from _Conversation(engine, plan, prompt, repeat, on_step).play(order)


@dataclass(slots=True)
class _Conversation:
    """The turns of one prompt; each method continues what it said itself."""

    engine: Engine
    plan: Plan
    prompt: Prompt
    repeat: int
    on_step: OnStep
    said: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def play(self, order: Sequence[str]) -> Iterator[list[Record]]:
        length = self.prompt.max_new_tokens or self.plan.values["length"]
        for turn, text in enumerate(self.prompt.turns, start=1):
            comparison = Comparison(self.engine, {**self.plan.values, "length": length})
            try:
                for method in order:
                    self._answer(comparison, Place(self.prompt, turn, self.repeat, method), text)
            except KeyboardInterrupt:
                yield self._records(comparison, turn)
                raise
            yield self._records(comparison, turn)

    def _answer(self, comparison: Comparison, place: Place, text: str) -> None:
        """One generation; once a method has failed, its conversation has no next turn."""
        method = place.method
        if method in self.errors:
            return
        said = self.said.setdefault(method, [])
        said.append(text)
        reset_peak_memory(self.engine.pair.target.device)
        try:
            for event, _ in comparison.run(method, self.engine.pair.encode(said, comparison.values["chat"])):
                if isinstance(event, Step):
                    self.on_step(place, event)
        except UserError as error:
            self.errors[method] = str(error)
        except Exception as error:  # out of memory, or a bug: the other generations are still worth having
            _log.exception("prompt %s, turn %d: %s failed", place.prompt.id, place.turn, method)
            self.errors[method] = f"{type(error).__name__}: {error}"
        else:
            said.append(self.engine.pair.decode(comparison.metrics[method].output_ids))

    def _records(self, comparison: Comparison, turn: int) -> list[Record]:
        ran = [name for name in self.plan.methods if name in self.errors or comparison.finished(name)]
        return [make_record(comparison, self.prompt, turn, name, self.errors.get(name)) for name in ran]
