"""An audit: what an engine is asked with speculation and without, and what its answers come to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.audit.checks import GreedyCheck, LogprobCheck, check_greedy, check_logprobs
from engines.audit.draw import Draws, drawn
from engines.audit.expected import Target
from engines.audit.judge import Group, LawTest, beginnings, judged, of_plain, of_target
from engines.home import ExternalEngine
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR
from utils.errors import UserError
from utils.parameter import ChosenPart

GREEDY = ChosenPart("greedy", (1.0,))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked. prompts: ids. methods: settings by the name of a run, plain decoding first.

    draws: answers to each prompt by each processor and method, of `tokens` tokens. length: of a greedy answer. at_once:
    requests under way at a time.
    """

    processors: Sequence[ChosenPart]
    prompts: Sequence[Sequence[int]]
    methods: Mapping[str, tuple[str, Mapping[str, Any]]]
    draws: int
    tokens: int = 2
    length: int = 32
    seed: int = 0
    at_once: int = 1

    @property
    def answers(self) -> int:
        """How many sampled answers that makes."""
        return len(self.processors) * len(self.prompts) * len(self.methods) * self.draws


@dataclass(slots=True)
class Audit:
    """An engine and what it answered so far.

    draws: by processor, method and prompt. refused: what it cannot do, by processor and method.
    """

    engine: ExternalEngine
    asked: Asked
    greedy: list[GreedyCheck] = field(default_factory=list)
    logprobs: list[LogprobCheck] = field(default_factory=list)
    draws: dict[tuple[ChosenPart, str, int], Draws] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    def play(self) -> Iterator[tuple[str, int]]:
        """Asks everything, a method after the other; yields what is under way and how many draws are done with.

        It may be left at any time: what was drawn is kept.
        """
        done = 0
        for name, (method, values) in self.asked.methods.items():
            self._check_rows(name, method, values)
            yield f"{name}, greedy", done
            for processor in self.asked.processors:
                shown, before = show(processor), done
                try:
                    for _ in self._drawn(name, method, {**values, "processor": processor}):
                        done += 1
                        yield f"{name}, {shown}", done
                except UserError as error:
                    self.refused[shown, name] = str(error)
                done = before + len(self.asked.prompts) * self.asked.draws
                yield f"{name}, {shown}", done

    def _check_rows(self, name: str, method: str, values: Mapping[str, Any]) -> None:
        greedy = {**values, "processor": GREEDY, "length": self.asked.length}
        for number, prompt in enumerate(self.asked.prompts):
            try:
                self.greedy.append(check_greedy(self.engine, name, method, greedy, prompt, number))
                told = check_logprobs(self.engine, name, method, greedy, prompt, number)
            except UserError as error:
                self.refused["greedy", name] = str(error)
                return
            if told is not None:
                self.logprobs.append(told)

    def _drawn(self, name: str, method: str, values: Mapping[str, Any]) -> Iterator[None]:
        """Every draw of a processor by a method. No two have the same seed, so that all are independent."""
        values = {**values, "length": self.asked.tokens}
        for number, prompt in enumerate(self.asked.prompts):
            first = self.asked.seed + len(self.draws) * self.asked.draws
            there = self.draws[values["processor"], name, number] = Draws()
            seeds = range(first, first + self.asked.draws)
            for answer in drawn(self.engine, method, values, prompt, seeds, self.asked.at_once):
                there.add(answer)
                yield

    def tests(self, level: float) -> list[LawTest]:
        """All tests of what was drawn, corrected for their number."""
        target = Target(self.engine.home)
        return list(judged([test for key in self.draws for test in self._tests(target, *key)], level))

    def _tests(self, target: Target, processor: ChosenPart, name: str, number: int) -> Iterator[LawTest]:
        shown, place = show(processor), (name, number)
        plain = next(name for name, (method, _) in self.asked.methods.items() if method == AR)
        for token in range(1, self.asked.tokens + 1):
            groups = self._groups(target, (processor, name, number), token)
            if groups:
                yield of_target(shown, *place, token, list(groups.values()))
            if name != plain:
                test = of_plain(shown, *place, token, groups, self._groups(target, (processor, plain, number), token))
                if test.draws:
                    yield test

    def _groups(self, target: Target, key: tuple[ChosenPart, str, int], token: int) -> dict[tuple[int, ...], Group]:
        """Draws of a token by the answer before it, each with what the target expects there."""
        processor, _, number = key
        behind = beginnings(self.draws[key].counts, token) if key in self.draws else {}
        prompt = self.asked.prompts[number]
        return {begun: Group(count, target.row(prompt, begun, processor)) for begun, count in behind.items()}


def show(processor: ChosenPart) -> str:
    """As settings spell it."""
    return PARAMETERS["processor"].show(processor)
