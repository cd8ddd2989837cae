"""What is run: configurations of methods on prompts, under processors and seeds, and who comes when."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ablation.plan.prompt_file import Prompt
from sampling.methods import REFERENCE
from sampling.settings import PARAMETERS
from utils.parameter import Chosen

CONTROL = "control"


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


AGAIN = Configuration(REFERENCE, alias=CONTROL)


class Key(NamedTuple):
    """What a row is known by: no two rows of a result share it."""

    id: str
    turn: int
    configuration: str
    processor: str
    seed: int
    repeat: int


@dataclass(frozen=True, slots=True)
class Place:
    """Which generation this is. turn counts from 1, repeat from 0; lossless is None for another output."""

    prompt: Prompt
    turn: int
    configuration: Configuration
    processor: Chosen
    seed: int
    repeat: int
    lossless: bool | None = None

    @property
    def method(self) -> str:
        """The configuration's method."""
        return self.configuration.method

    @property
    def key(self) -> Key:
        """Its name in a result."""
        processor = PARAMETERS["processor"].show(self.processor)
        return Key(str(self.prompt.id), self.turn, self.configuration.name, processor, self.seed, self.repeat)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every configuration on every prompt, under every processor and seed, `repeats` times.

    `values` holds every setting; configurations, processors and seeds override it. compare: methods of which the report
    compares the best configurations.
    """

    prompts: tuple[Prompt, ...]
    configurations: tuple[Configuration, ...]
    values: Mapping[str, Any]
    processors: tuple[Chosen, ...]
    seeds: tuple[int, ...]
    repeats: int = 1
    compare: tuple[tuple[str, str], ...] = ()

    @property
    def generations(self) -> int:
        """How many rows a whole run has."""
        blocks = len(self.configurations) * len(self.processors) * len(self.seeds) * self.repeats
        return sum(len(prompt.turns) for prompt in self.prompts) * blocks

    def order(self, shift: int) -> tuple[Configuration, ...]:
        """The reference first, so that every other row is known to be right and fast when it is done.

        The others follow in an order that rotates with `shift`: none always runs on the machine state
        that the same other one left.
        """
        first = tuple(c for c in self.configurations if c.name == REFERENCE)
        others = tuple(c for c in self.configurations if c.name != REFERENCE)
        turn = shift % len(others) if others else 0
        return (*first, *others[turn:], *others[:turn])

    def passes(self) -> Iterator["Pass"]:
        """All runs over the prompts; a method's memory of earlier prompts lasts for one of them."""
        for repeat in range(self.repeats):
            for seed in self.seeds:
                for processor in self.processors:
                    yield Pass(repeat, seed, processor)

    def places(self, one: "Pass") -> Iterator[Place]:
        """All generations of a pass."""
        for prompt in self.prompts:
            for turn in range(1, len(prompt.turns) + 1):
                for configuration in self.configurations:
                    yield Place(prompt, turn, configuration, one.processor, one.seed, one.repeat)

    def length(self, prompt: Prompt) -> int:
        """Most tokens to generate for a prompt."""
        return prompt.max_new_tokens or int(self.values["length"])


@dataclass(frozen=True, slots=True)
class Pass:
    """One run over the prompts: which repeat, seed and processor."""

    repeat: int
    seed: int
    processor: Chosen


def plain_plan(
    prompts: tuple[Prompt, ...], configurations: tuple[Configuration, ...], values: Mapping[str, Any], repeats: int
) -> Plan:
    """Configurations under the processor and seed that are set."""
    return Plan(prompts, configurations, values, (values["processor"],), (values["seed"],), repeats)
