"""What runs methods on prompts, as everything that measures sees it: our loop on a pair, another engine, a mock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from egag.cost_model import CostModel
from sampling.forward.noise_floor import NoiseFloor
from sampling.forward.referee import RefereeResult
from sampling.forward.traffic import Traffic
from sampling.methods.tables import METHODS
from sampling.pair.model_info import ModelInfo
from sampling.pair.profile import LatencyProfile
from utils.events import Event


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine runs: its models, folders of trained heads by kind, where, and how many tokens fit.

    traffic: what a forward of the target reads; None where that is not known. version: of the engine. vocab_size: ids
    that the target knows; None where that is not known. encoder: whether the models are encoder-decoders.
    """

    target: ModelInfo
    drafter: ModelInfo | None
    window: int
    device: torch.device
    heads: Mapping[str, Path] = field(default_factory=dict)
    traffic: Traffic | None = None
    version: str = ""
    vocab_size: int | None = None
    encoder: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt (ids) of many, the most tokens to write after it, and what the asker knows it by.

    arrives_s: see `sampling.batch.Request`.
    """

    tag: Any
    prompt: Sequence[int]
    length: int
    arrives_s: float | None = None


class Engine(Protocol):
    """Runs methods by name with settings. Ids go in and come out; the same engine's plain run is their measure."""

    def describe(self) -> Description:
        """What it runs."""
        ...

    def tokenise(self, turns: Sequence[str], chat: bool, system: str | None = None) -> list[int]:
        """Ids of a prompt: user turns and answers alternate, the last turn is the user's. chat: in the template.

        Raises `UserError` for a system message that the template does not take.
        """
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        ...

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        """Events of one method on one prompt (ids); `values` holds the settings by name.

        run: whose memory of earlier prompts it continues, by default the method's own; runs that are compared
        must not learn from each other's answers. Raises `UserError` where the method cannot run.
        """
        ...

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        """Events of one method on many prompts, `batch` of them at a time, each with the tag of its text.

        A text is asked for when there is room for it. Raises `UserError` where the method cannot run, or not so.
        """
        ...

    def lossless(self, name: str, values: Mapping[str, Any]) -> bool:
        """Whether the method's output has the target's own distribution under these values."""
        ...

    def reference(self, prompt: Sequence[int], said: Sequence[int]) -> NoiseFloor:
        """What the target says after a prompt and what was `said`: who judges where two outputs part asks it."""
        ...

    def referee(self, prompt: Sequence[int], output: Sequence[int]) -> RefereeResult:
        """What the target says of a whole greedy answer, whoever wrote it."""
        ...

    def resolve(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of a method that were left to the engine, with what they came to."""
        ...

    def profile(self) -> LatencyProfile | None:
        """What its forwards and drafts cost, where that was measured."""
        ...

    def forget(self) -> None:
        """Drop what is remembered of earlier prompts."""
        ...

    def in_format(self, name: str) -> "Engine":
        """The same target with its weights in another format; caches and what is remembered are its own.

        The same engine for the same name. Raises `UserError` where there is no such format.
        """
        ...


def in_formats(engine: Engine, names: Sequence[str]) -> dict[str, Engine]:
    """The engine in each format of its target's weights, by what they then are in; without names as it is."""
    engines = [engine.in_format(name) for name in names] or [engine]
    return {engine.describe().target.stored: engine for engine in engines}


def price_on(engine: Engine, name: str, values: Mapping[str, Any], context: int) -> CostModel | None:
    """What a round of a method costs behind about so many tokens; None where it was not measured.

    A profile is of forwards with a cache.
    """
    profile = engine.profile()
    return None if profile is None or not values["cache"] else METHODS[name].cost_model(profile, values, context)
