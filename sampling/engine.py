"""The contract of an engine, which runs methods on prompts: our loop on a loaded pair, another server, or a mock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from egag.cost_model import CostModel
from sampling.forward.noise_floor import NoiseFloor
from sampling.forward.referee import RefereeResult
from sampling.forward.traffic import Traffic
from sampling.grammar.spelling import OFF_WORD
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.tables import METHODS
from sampling.pair.model_info import ModelInfo
from sampling.pair.profile import LatencyProfile
from utils.events import Event
from utils.parameter import ChosenPart


@dataclass(frozen=True, slots=True)
class Description:
    """What an engine runs: its models, the folders of its trained heads by kind, its device and its context window.

    traffic: the bytes that a forward of the target reads; None if unknown. version: the version of the engine.
    vocab_size: the number of ids of the target's vocabulary; None if unknown. encoder: whether the models are
    encoder-decoder models.
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
    """One of many prompts (ids), the most new tokens after it, and the caller's own name for it.

    arrives_s: see `sampling.batch.Request`. grammar, seed: in place of the one that is set; None: that one.
    """

    tag: Any
    prompt: Sequence[int]
    length: int
    arrives_s: float | None = None
    grammar: str | None = None
    seed: int | None = None


class Engine(Protocol):
    """Runs methods by name with settings, on ids. Speedups are ratios to plain decoding on the same engine."""

    def describe(self) -> Description:
        """The models, the device and the context window of the engine."""
        ...

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """The ids of a prompt. Turns alternate between user and assistant; the last turn is the user's.

        chat: whether to apply the chat template. variables: what the template is told beside the turns. Raises
        `UserError` for a system message or variables that the template does not accept.
        """
        ...

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        ...

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        """The events of one method on one prompt (ids); `values` holds the settings by name.

        run: the name of the run whose memory of earlier prompts is used, by default the method's. Runs that are
        compared must not learn from each other's answers. Raises `UserError` if the method cannot run.
        """
        ...

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        """The events of one method on many prompts in a batch of `batch`, each with the tag of its text.

        The next text is taken when a slot is free. Raises `UserError` if the method cannot run, or cannot run in a
        batch.
        """
        ...

    def lossless(self, name: str, values: Mapping[str, Any]) -> bool:
        """Whether the method's output has the target's own distribution under these values."""
        ...

    def reference(
        self, prompt: Sequence[int], said: Sequence[int], processor: ChosenPart, grammar: str = OFF_WORD
    ) -> NoiseFloor:
        """The target's logits after a prompt and the answer `said`, as processors of the text and a grammar leave them.

        They show whether differing outputs are a near tie.
        """
        ...

    def referee(self, prompt: Sequence[int], output: Sequence[int]) -> RefereeResult:
        """The target's judgement of a whole greedy answer from any source."""
        ...

    def resolve(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a method whose value is `auto`, with the values that the engine chose."""
        ...

    def profile(self) -> LatencyProfile | None:
        """The measured cost of forwards and drafts; None if not measured."""
        ...

    def forget(self) -> None:
        """Drop all memory of earlier prompts."""
        ...

    def in_format(self, name: str) -> "Engine":
        """The same target with its weights in another number format. Caches and memory are separate.

        The same name gives the same engine. Raises `UserError` for an unknown format.
        """
        ...


def in_formats(engine: Engine, names: Sequence[str]) -> dict[str, Engine]:
    """The engine in each format of its target's weights, by the name of the format that results.

    Without names: the engine alone.
    """
    engines = [engine.in_format(name) for name in names] or [engine]
    return {engine.describe().target.stored: engine for engine in engines}


def price_on(engine: Engine, name: str, values: Mapping[str, Any], context: int) -> CostModel | None:
    """The cost of a round of a method after `context` tokens; None if not measured.

    A profile holds for forwards with a cache only.
    """
    profile = engine.profile()
    return None if profile is None or not values["cache"] else METHODS[name].cost_model(profile, values, context)
