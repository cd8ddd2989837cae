"""What every other engine takes from ours: the tokenizer, the law, and the target that judges where outputs part."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engines.dialect import TextRequest
from sampling.engine import Description, Engine, Text
from sampling.forward.noise_floor import NoiseFloor
from sampling.forward.referee import RefereeResult
from sampling.grammar.spelling import OFF_WORD
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.choices import PROCESSORS
from sampling.pair.profile import LatencyProfile
from utils.errors import UserError
from utils.events import Event
from utils.parameter import ChosenPart
from utils.text import quoted


class ExternalEngine(ABC):
    """Another engine behind the protocol. Ids go in and come out, so that no chat template comes between.

    home: our engine on the same target. name, version: of the engine, for records.
    """

    name: str
    version: str

    def __init__(self, home: Engine) -> None:
        self.home = home

    @abstractmethod
    def describe(self) -> Description:
        """See `Engine.describe`."""

    @abstractmethod
    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        """See `Engine.stream`: one `WholeAnswer`."""

    def close(self) -> None:
        """Its part of a plan is over: what was started for it may end, and is started again where it is asked."""
        return

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        """See `Engine.stream_many`."""
        raise UserError(f"batch {batch} given for {self.name}, which takes one text at a time; expected no batch")

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """See `Engine.tokenise`."""
        return self.home.tokenise(turns, chat, system, variables)

    def text(self, ids: Sequence[int]) -> str:
        """See `Engine.text`."""
        return self.home.text(ids)

    def reference(
        self, prompt: Sequence[int], said: Sequence[int], processor: ChosenPart, grammar: str = OFF_WORD
    ) -> NoiseFloor:
        """See `Engine.reference`: our target says it, whatever engine wrote."""
        return self.home.reference(prompt, said, processor, grammar)

    def referee(self, prompt: Sequence[int], output: Sequence[int]) -> RefereeResult:
        """See `Engine.referee`."""
        return self.home.referee(prompt, output)

    def lossless(self, name: str, values: Mapping[str, Any]) -> bool:
        """See `Engine.lossless`."""
        return self.home.lossless(name, values)

    def resolve(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `Engine.resolve`."""
        return {}

    def profile(self) -> LatencyProfile | None:
        """See `Engine.profile`: nobody has measured it."""
        return None

    def forget(self) -> None:
        """See `Engine.forget`: what a server remembers of earlier prompts stays there."""
        return

    def in_format(self, name: str) -> "ExternalEngine":
        """See `Engine.in_format`."""
        if name != self.describe().target.stored:
            raise UserError(f"target_weights {name} given for {self.name}; expected {self.describe().target.stored}")
        return self


def wanted(values: Mapping[str, Any], prompt: Sequence[int], samplers: Collection[str] = ()) -> TextRequest:
    """What is to be written, in the words of samplers everywhere. samplers: options that the engine has.

    Raises `UserError` for a grammar, and for options that it lacks.
    """
    if values["grammar"] != OFF_WORD:
        raise UserError(
            f"grammar {quoted(values['grammar'])} given, which other engines are not asked for; expected off"
        )
    processor = values["processor"]
    lacking = [name for name, _ in processor.options if name not in samplers]
    if lacking:
        raise UserError(
            f"{', '.join(lacking)} given, which the engine is not asked for; expected a processor without"
            + (f", or one of {', '.join(samplers)}" if samplers else "")
        )
    temperature, most, mass = sampler(processor)
    options = dict(processor.options)
    return TextRequest(prompt, values["length"], values["seed"], temperature, most, mass, options)


def sampler(processor: ChosenPart) -> tuple[float, int, float]:
    """Temperature (0 is greedy), top_k (0 is all) and top_p (1 is all) of a processor."""
    if processor.name == "greedy":
        return 0.0, 0, 1.0
    names = (parameter.name for parameter in PROCESSORS[processor.name].parameters)
    arguments = dict(zip(names, processor.arguments, strict=True))
    return float(arguments["temperature"]), int(arguments.get("top_k", 0)), float(arguments.get("top_p", 1.0))
