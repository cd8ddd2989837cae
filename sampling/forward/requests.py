"""Requests for forwards: a drafter says what it needs, and its driver how many sequences share a forward.

A drafter's work on one sequence is a generator. It yields each forward that it needs, is sent the result, and returns a
proposal. `run_single` runs one such generator. `run_batched` runs those of many sequences side by side: what they
request of one model at a time goes through it at once.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class BatchExecutor(Protocol):
    """What runs a model over all that is fed at once."""

    def run(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """The result of each feed, which holds until the next call."""
        ...


@dataclass(frozen=True, slots=True)
class ForwardRequest:
    """One sequence's part of a forward: what runs it, and what it feeds."""

    executor: BatchExecutor
    feed: Any


StepGenerator = Generator[ForwardRequest, Any, T]


class RequestingRunner(ABC):
    """A runner whose forwards can be shared with other sequences."""

    @abstractmethod
    def request(
        self, tokens: Any, parents: Sequence[int] | None, hidden: Sequence[int], rows: int | None
    ) -> ForwardRequest:
        """`Runner.forward` as a part of one for many."""


def run_single(steps: StepGenerator[T]) -> T:
    """What one sequence's generator returns; every forward is its own."""
    try:
        request = next(steps)
        while True:
            request = steps.send(request.executor.run([request.feed])[0])
    except StopIteration as end:
        result: T = end.value
        return result


def run_batched(generators: Sequence[StepGenerator[T]]) -> tuple[list[T], list[float]]:
    """What each generator returns; those that request the same model share its forward.

    Then the host's seconds for each: its own, and its part of what it shared.
    """
    results: dict[int, T] = {}
    pending: dict[int, ForwardRequest] = {}
    seconds = [0.0] * len(generators)

    def resume(number: int, result: Any = None) -> None:
        begun = time.perf_counter()
        try:
            pending[number] = generators[number].send(result)
        except StopIteration as end:
            results[number] = end.value
        seconds[number] += time.perf_counter() - begun

    for number in range(len(generators)):
        resume(number)
    while pending:
        executor = next(iter(pending.values())).executor
        group = [number for number, request in pending.items() if request.executor is executor]
        feeds = [pending.pop(number).feed for number in group]
        begun = time.perf_counter()
        outputs = executor.run(feeds)
        share = (time.perf_counter() - begun) / len(group)
        for number, output in zip(group, outputs, strict=True):
            seconds[number] += share
            resume(number, output)
    return [results[number] for number in range(len(generators))], seconds
