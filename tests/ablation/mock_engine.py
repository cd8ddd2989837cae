"""An engine whose events and times are written down, so that every number that follows can be worked out by hand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch

from ablation.plan.grid import AGAIN, Configuration, Plan
from ablation.plan.prompts.file import Prompt
from sampling.engine import Description, Engine, Text
from sampling.forward.noise_floor import NoiseFloor
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.settings import Settings
from sampling.pair.model_info import ModelInfo
from sampling.pair.profile import LatencyProfile
from utils.events import Event, Finished, Prefilled, Round
from utils.parameter import ChosenPart

GREEDY, NUCLEUS = ChosenPart("greedy", (1.0,)), ChosenPart("nucleus", (0.8, 0.9))


def make_round(number: int, drafts: Sequence[int], accepted: int, token: int, seconds: float) -> Round:
    """A round that drafts a chain, keeps the first `accepted` and takes `seconds` (half of it verifying)."""
    return Round(
        number=number,
        position=4 + number,
        gamma=len(drafts),
        drafts=tuple(drafts),
        parents=None,
        q=(1.0,) * len(drafts),
        p=(1.0,) * len(drafts),
        path=tuple(range(accepted)),
        next_token=token,
        entropy=1.0 if drafts else None,
        vocab_size=1000,
        draft_s=seconds / 4 if drafts else 0.0,
        verify_s=seconds / 2,
        other_s=seconds / 4 if drafts else seconds / 2,
    )


@dataclass
class MockEngine:
    """Plain autoregression: four rounds of 0.1 s, one token each. Everything else: two rounds of 0.1 s that draft
    two tokens and keep the first: the same four tokens in half the time.

    `calls` lists (method, gamma, seed, processor, prompt). `fail` names a method that raises.
    """

    fail: str = ""
    stored: str = "full"
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    forgotten: int = 0
    known: LatencyProfile | None = None

    def describe(self) -> Description:
        target = ModelInfo("mock", "cpu", "float32", stored=self.stored)
        return Description(target, None, 100, torch.device("cpu"))

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        return [len("\n".join(turns))] * 4

    def text(self, ids: Sequence[int]) -> str:
        return 'said "a, b"\n' + " ".join(map(str, ids))

    def reference(
        self, prompt: Sequence[int], said: Sequence[int], processor: ChosenPart, grammar: str = "off"
    ) -> NoiseFloor:
        raise AssertionError("all its outputs are equal")

    def resolve(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        self.calls.append((name, values["gamma"], values["seed"], values["processor"].name, tuple(prompt)))
        if name == self.fail:
            raise RuntimeError("planted")
        yield Prefilled(len(prompt), 0.25)
        if name == "target":
            for number, token in enumerate((5, 6, 7, 8)):
                yield make_round(number, (), 0, token, 0.1)
        else:
            yield make_round(0, (5, 9), 1, 6, 0.1)
            yield make_round(1, (7, 9), 1, 8, 0.1)
        yield Finished("length", 4)

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        """The same rounds, `batch` texts in each of them; all texts of a group begin and end together."""
        waiting = iter(texts)
        while group := list(islice(waiting, batch)):
            told = [list(self.stream(name, values, text.prompt)) for text in group]
            for moment in zip(*told, strict=True):
                for text, event in zip(group, moment, strict=True):
                    yield text.tag, replace(event, live=len(group)) if isinstance(event, Round) else event

    def lossless(self, name: str, values: Mapping[str, Any]) -> bool:
        return True

    def profile(self) -> LatencyProfile | None:
        return self.known

    def forget(self) -> None:
        self.forgotten += 1

    def in_format(self, name: str) -> Engine:
        return replace(self, stored=name)


def mock_engine(fail: str = "") -> Engine:
    return MockEngine(fail)


def mock_plan(prompts: int = 2, repeats: int = 1) -> Plan:
    """AR, its control, and speculative decoding with two draft lengths, on two processors and two seeds."""
    played = tuple(Prompt(f"p{i}", ("x" * (i + 1),), "t") for i in range(prompts))
    methods = (
        Configuration("target"),
        AGAIN,
        Configuration("speculative", (("gamma", 2),)),
        Configuration("speculative", (("gamma", 4),)),
    )
    return Plan(played, methods, Settings(), (GREEDY, NUCLEUS), (1, 2), repeats)
