"""Plays a plan on one engine, interleaved, and yields records as soon as they are known."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

from ablation.plan.grid import BatchLoad, Configuration, Plan, PlanPass, RowKey, rotated
from ablation.plan.prompts.file import Prompt
from ablation.results.record import Record
from ablation.run.configuration_run import ConfigurationRun, EnginePass
from ablation.run.conversation import Conversation
from ablation.run.progress.watcher import NullWatcher, Watcher
from sampling.engine import Engine, in_formats
from sampling.measure.comparison import Comparison
from sampling.methods.tables import AR, METHODS
from utils.parameter import ChosenPart


@dataclass(frozen=True, slots=True)
class PlayedRow:
    """What an earlier run left of a generation: its text, or its error."""

    text: str
    error: str | None = None


def execute(
    engine: Engine, plan: Plan, watcher: Watcher | None = None, done: Mapping[RowKey, PlayedRow] | None = None
) -> Iterator[list[Record]]:
    """The records of a plan, a list for each generation: its own, once the reference has had its turn, else nothing.

    One at a time: on each prompt all configurations take turns, the reference among them, in an order that rotates
    from prompt to prompt; formats of the target's weights take turns at every step, each compared with its own
    reference. Each pass over the prompts starts without memory of earlier ones. At a load: each configuration answers
    all prompts of a pass, in an order that rotates from pass to pass; the records of a batch come at once. What ran
    before its reference waits for it, as a record says how it compares. A generation that fails leaves a record with
    its error.
    `done` generations are not yielded; where others of their prompt, or of their load, are missing, the reference runs
    again, so that those are compared with the machine as it is now; and what remembers earlier prompts runs again
    on them.
    """
    done, lossless = done or {}, known_lossless(engine, plan)
    engines = tuple(_DescribedEngine(each) for each in in_formats(engine, plan.formats).values())
    for number, seeded in enumerate(plan.passes()):
        if all(place.key in done for place in plan.places(seeded, tuple(each.begun.target.stored for each in engines))):
            continue
        if not plan.loads:
            for each in engines:
                each.engine.forget()
        for group in _groups(plan, seeded):
            yield from _in_turn(
                _Track(
                    EnginePass(each.engine, each.begun, each.about, plan, seeded, load, lossless),
                    prompts,
                    watcher or NullWatcher(),
                    done,
                ).play(plan.order(number + (index if plan.in_turn else 0)))
                for index, prompts, load in group
                for each in rotated(engines, index + number)
            )


class _DescribedEngine:
    """An engine with its description as a run begins, and once it has answered."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.begun, self.about = engine, engine.describe(), cache(engine.describe)


def _groups(plan: Plan, seeded: PlanPass) -> Iterator[Sequence[tuple[int, tuple[Prompt, ...], BatchLoad | None]]]:
    """What takes turns: prompts that are played together at a load, each with the place of the first."""
    placed = list(plan.played(seeded))
    if plan.loads:
        every = tuple(prompt for _, prompt in placed)
        yield from ([(0, every, load)] for load in plan.loads)
    elif plan.in_turn:
        yield from ([(index, (prompt,), None)] for index, prompt in placed)
    else:
        yield [(index, (prompt,), None) for index, prompt in placed]


def _in_turn(several: Iterable[Iterator[list[Record]]]) -> Iterator[list[Record]]:
    """One of each in turn until all are at their end, none before it is asked for.

    Example: (a, b) and (c, d, e) -> a, c, b, d, e.
    """
    waiting = deque(several)
    while waiting:
        first = waiting.popleft()
        for records in islice(first, 1):
            waiting.append(first)
            yield records


def known_lossless(engine: Engine, plan: Plan) -> dict[tuple[Configuration, ChosenPart], bool | None]:
    """Whether each configuration keeps the target's distribution under each processor; None for another output."""
    lossless: dict[tuple[Configuration, ChosenPart], bool | None] = {}
    for configuration in plan.configurations:
        for processor in plan.processors:
            values = {**plan.values, "processor": processor, **dict(configuration.parameters)}
            other = METHODS[configuration.method].other
            lossless[configuration, processor] = (
                engine.lossless(configuration.method, values) if other is None else None
            )
    return lossless


@dataclass(frozen=True, slots=True)
class _Track:
    """Prompts in one pass and format, one at a time or all at a load: all that is compared with one reference."""

    setting: EnginePass
    prompts: tuple[Prompt, ...]
    watcher: Watcher
    done: Mapping[RowKey, PlayedRow]

    def play(self, order: tuple[Configuration, ...]) -> Iterator[list[Record]]:
        """Each configuration in this order; after each the records that are known by then and were not before.

        One at a time they take turns at every turn of the conversation; at a load each plays all turns.
        """
        talks = {each: [Conversation(each.name, prompt) for prompt in self.prompts] for each in order}
        every = range(1, max(len(prompt.turns) for prompt in self.prompts) + 1)
        compared: dict[tuple[str | int, int], Comparison] = {}
        for turns in [every] if self.setting.load else [[turn] for turn in every]:
            runs = [ConfigurationRun(self.setting, each, talks[each], turns, compared) for each in order]
            missing = not all(self._is_there(run) for run in runs)
            measured = AR not in {each.name for each in order}
            held: list[ConfigurationRun] = []
            for run in runs:
                measured = measured or run.configuration.name == AR
                if not self._is_there(run):
                    run.play(self.watcher)
                    held.append(run)
                elif self._runs_again(run, missing):
                    run.play(NullWatcher())
                else:
                    self._remember(run)
                yield [record for each in held for record in each.records()] if measured else []
                held = [] if measured else held

    def _is_there(self, run: ConfigurationRun) -> bool:
        return all(place.key in self.done for _, place in run.generations())

    def _runs_again(self, run: ConfigurationRun, missing: bool) -> bool:
        """Whether what is there is needed once more, as the measure of what is missing, or as its memory."""
        if missing and run.configuration.name == AR:
            return True
        values = {**self.setting.plan.values, **dict(run.configuration.parameters)}
        return self.setting.load is None and METHODS[run.configuration.method].remembers(values)

    def _remember(self, run: ConfigurationRun) -> None:
        for conversation, place in run.generations():
            earlier = self.done[place.key]
            conversation.remember(place.turn, earlier.text, earlier.error)
