"""What is run: configurations of methods on prompts, under processors and seeds, and who comes when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, TypeVar

from ablation.plan.prompts.file import Prompt
from ablation.plan.slo import Slo
from engines.spec import OURS, TRANSFORMERS, EngineSpec
from sampling.grammar.spelling import GRAMMAR
from sampling.loading.options import WEIGHTS
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR, METHODS
from sampling.methods.tables import CONTROL as CONTROL
from utils.parameter import ChosenPart

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A method with those of its parameters that set it apart; `name` is how rows and tables call it.

    Example: ngram with top_k_filler 1 and storage basic 3 -> "ngram set_ngramstorage=basic 3, top_k_filler=1".
    """

    method: str
    parameters: tuple[tuple[str, Any], ...] = ()
    alias: str = ""

    @property
    def name(self) -> str:
        """The alias, or the method and its parameters."""
        shown = ", ".join(f"{name}={PARAMETERS[name].show(value)}" for name, value in self.parameters)
        return self.alias or f"{self.method} {shown}".strip()


AGAIN = Configuration(AR, alias=CONTROL)


def titled(configuration: str) -> str:
    """How tables call a configuration, from its name: `speculative gamma=2` -> `SD (speculative) gamma=2`."""
    method, space, parameters = configuration.partition(" ")
    return f"{METHODS[method].label}{space}{parameters}" if method in METHODS else configuration


class RowKey(NamedTuple):
    """What a row is known by: no two rows of a result share it."""

    id: str
    turn: int
    configuration: str
    processor: str
    seed: int
    repeat: int
    target_weights: str
    batch: int
    rate: float
    engine: str


class BatchLoad(NamedTuple):
    """How many prompts are answered at a time, and how many arrive a second; None: each comes when there is room."""

    batch: int
    rate: float | None = None

    @property
    def text(self) -> str:
        """For people: `4 at a time, 0.5 a second`."""
        return f"{self.batch} at a time" + ("" if self.rate is None else f", {self.rate:g} a second")


@dataclass(frozen=True, slots=True)
class PlannedGeneration:
    """Which generation this is. turn counts from 1, repeat from 0; lossless is None for another output.

    target_weights: the format of the target's weights, which the engine has said. load: how many texts at a
    time, and how they come; None where each goes through the loop of one. engine: whose generation it is.
    """

    prompt: Prompt
    turn: int
    configuration: Configuration
    processor: ChosenPart
    seed: int
    repeat: int
    lossless: bool | None = None
    target_weights: str = WEIGHTS[0]
    load: BatchLoad | None = None
    engine: str = OURS

    @property
    def method(self) -> str:
        """The configuration's method."""
        return self.configuration.method

    @property
    def key(self) -> RowKey:
        """Its name in a result."""
        processor = PARAMETERS["processor"].show(self.processor)
        name, weights = self.configuration.name, self.target_weights
        return RowKey(
            *(str(self.prompt.id), self.turn, name, processor, self.seed, self.repeat, weights),
            *(self.batch, self.rate, self.engine),
        )

    @property
    def batch(self) -> int:
        """How many texts at a time."""
        return self.load.batch if self.load else 1

    @property
    def rate(self) -> float:
        """Prompts that arrive a second; 0 where each comes when there is room."""
        return self.load.rate or 0.0 if self.load else 0.0


def rotated(several: tuple[T, ...], shift: int) -> tuple[T, ...]:
    """Example: (a, b, c) and 4 -> (b, c, a)."""
    turn = shift % len(several) if several else 0
    return (*several[turn:], *several[:turn])


@dataclass(frozen=True, slots=True)
class EngineSide:
    """What another engine plays of a plan: the configurations that it has, the reference among them."""

    spec: EngineSpec
    configurations: tuple[Configuration, ...]


class WorkUnit(NamedTuple):
    """A prompt in a pass: everything that is compared with its reference, so that one machine plays all of it."""

    repeat: int
    seed: int
    processor: str
    id: str


@dataclass(frozen=True, slots=True)
class PlanPart:
    """What is played here of a plan that is played in several places. name: of a shard, such as 2/5."""

    units: frozenset[WorkUnit]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every configuration on every prompt, under every processor and seed, `repeats` times.

    `values` holds every setting; configurations, processors and seeds override it. compare: methods of which the report
    compares the best configurations. formats: of the target's weights, each of which plays everything; none: the
    target as it was loaded. batches: how many prompts are answered at a time, each number by everything; none: one
    after the other. rates: prompts that arrive a second, with each number; none: each comes when there is room.
    slo: see `Slo`. engine: who plays it; sides: who plays it as well, one after the other, or prompt by prompt
    (interleave_engines). in_turn: whether configurations take turns on each prompt; else each plays all prompts, as it
    takes minutes to start. part: what of it is played here; None: all of it. share_prefill: whether our engine reads a
    prompt once for all configurations. by_task: whether each task's prompts are passes of their own, so that a batch
    holds one kind of text.
    """

    prompts: tuple[Prompt, ...]
    configurations: tuple[Configuration, ...]
    values: Mapping[str, Any]
    processors: tuple[ChosenPart, ...]
    seeds: tuple[int, ...]
    repeats: int = 1
    compare: tuple[tuple[str, str], ...] = ()
    formats: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    slo: Slo | None = None
    engine: str = OURS
    sides: tuple[EngineSide, ...] = ()
    interleave_engines: bool = False
    in_turn: bool = True
    part: PlanPart | None = None
    share_prefill: bool = False
    by_task: bool = False

    def of(self, side: EngineSide) -> "Plan":
        """What another engine plays: a server the same batch, transformers' `generate` one prompt after the other."""
        alone = side.spec.kind == TRANSFORMERS
        return replace(
            self,
            configurations=side.configurations,
            formats=(),
            batches=() if alone else self.batches,
            rates=() if alone else self.rates,
            engine=side.spec.name,
            sides=(),
            in_turn=self.interleave_engines or not side.spec.started,
            share_prefill=False,
        )

    @property
    def loads(self) -> tuple[BatchLoad, ...]:
        """Every number at a time with every rate; none where prompts are answered one after the other."""
        return tuple(BatchLoad(batch, rate) for batch in self.batches for rate in self.rates or (None,))

    @property
    def generations(self) -> int:
        """How many rows a whole run has."""
        return self.own_generations + sum(self.of(side).generations for side in self.sides)

    @property
    def own_generations(self) -> int:
        """The same without those of the other engines."""
        turns = sum(len(prompt.turns) for each_pass in self.passes() for _, prompt in self.played(each_pass))
        return turns * len(self.configurations) * max(1, len(self.formats)) * max(1, len(self.loads))

    def order(self, shift: int) -> tuple[Configuration, ...]:
        """In an order that rotates with `shift`, the reference like all others.

        Who runs first finds another machine than who runs last. Over as many blocks as there are configurations each
        has every place once.
        """
        return rotated(self.configurations, shift)

    def passes(self) -> Iterator["PlanPass"]:
        """All runs over the prompts; a method's memory of earlier prompts lasts for one of them."""
        for repeat in range(self.repeats):
            for seed in self.seeds:
                for processor in self.processors:
                    for task in dict.fromkeys(map(self.task_of, self.prompts)):
                        yield PlanPass(repeat, seed, processor, task)

    def task_of(self, prompt: Prompt) -> str:
        """Which pass a prompt is in: its task's, or with all others in that of no name."""
        return prompt.task or "" if self.by_task else ""

    def unit(self, each_pass: "PlanPass", prompt: Prompt) -> WorkUnit:
        """A prompt of a pass as what is dealt out."""
        processor = PARAMETERS["processor"].show(each_pass.processor)
        return WorkUnit(each_pass.repeat, each_pass.seed, processor, str(prompt.id))

    def played(self, each_pass: "PlanPass") -> Iterator[tuple[int, Prompt]]:
        """The prompts that are played here in a pass, each with its place among all."""
        for place, prompt in enumerate(self.prompts):
            here = self.part is None or self.unit(each_pass, prompt) in self.part.units
            if here and self.task_of(prompt) == each_pass.task:
                yield place, prompt

    def places(self, each_pass: "PlanPass", formats: Sequence[str]) -> Iterator[PlannedGeneration]:
        """All generations of a pass. formats: what the target's weights are in, one or more."""
        for _, prompt in self.played(each_pass):
            for turn in range(1, len(prompt.turns) + 1):
                for configuration, weights, load in product(self.configurations, formats, self.loads or (None,)):
                    yield self.place(each_pass, prompt, turn, configuration, weights, load)

    def place(
        self,
        each_pass: "PlanPass",
        prompt: Prompt,
        turn: int,
        configuration: Configuration,
        weights: str,
        load: BatchLoad | None,
    ) -> PlannedGeneration:
        """A generation of a pass. weights: the format of the target's."""
        return PlannedGeneration(
            prompt=prompt,
            turn=turn,
            configuration=configuration,
            processor=each_pass.processor,
            seed=each_pass.seed,
            repeat=each_pass.repeat,
            target_weights=weights,
            load=load,
            engine=self.engine,
        )

    def length(self, prompt: Prompt) -> int:
        """Most tokens to generate for a prompt."""
        return prompt.max_new_tokens or int(self.values["length"])

    def grammar(self, prompt: Prompt) -> str:
        """What the answers to a prompt must be."""
        return str(self.values[GRAMMAR.name]) if prompt.grammar is None else prompt.grammar


@dataclass(frozen=True, slots=True)
class PlanPass:
    """One run over the prompts: which repeat, seed and processor; task: see `Plan.task_of`."""

    repeat: int
    seed: int
    processor: ChosenPart
    task: str = ""
