"""Requests for forwards: a drafter says what it needs, and its driver how many sequences share a forward.

A drafter's work on one sequence is a generator. It yields each forward that it needs, is sent the result, and returns a
proposal. `run_single` runs one such generator. `run_batched` runs those of many sequences side by side: what they
request of one model at a time goes through it at once. What goes wrong in one of them is its result: an error passes
through the steps behind it, and the others do not notice.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from utils.device.spare import OUT_OF_MEMORY, attempt, each_of

T = TypeVar("T")


class BatchExecutor(Protocol):
    """What runs a model over all that is fed at once."""

    def run(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """The result of each feed, which holds until the next call; the error of one that has none."""
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


def run_batched(generators: Sequence[StepGenerator[T] | Exception]) -> tuple[list[T | Exception], list[float]]:
    """What each generator returns, or the error that it raises; those that request the same model share its forward.

    Then the host's seconds for each: its own, and its part of what it shared. In place of a generator an error may
    stand, which is its result. Where a shared forward fails, each has its own. Raises where memory runs out.
    """
    results: dict[int, T | Exception] = {}
    pending: dict[int, tuple[StepGenerator[T], ForwardRequest]] = {}
    seconds = [0.0] * len(generators)

    def resume(number: int, steps: StepGenerator[T], result: Any = None) -> None:
        begun = time.perf_counter()
        try:
            pending[number] = steps, steps.send(result)
        except StopIteration as end:
            results[number] = end.value
        except OUT_OF_MEMORY:
            raise
        except Exception as error:
            results[number] = error
        seconds[number] += time.perf_counter() - begun

    for number, steps in enumerate(generators):
        if isinstance(steps, Exception):
            results[number] = steps
        else:
            resume(number, steps)
    while pending:
        executor = next(iter(pending.values()))[1].executor
        group = {number: steps for number, (steps, request) in pending.items() if request.executor is executor}
        feeds = [pending.pop(number)[1].feed for number in group]
        begun = time.perf_counter()
        outputs = attempt(executor.run, feeds)
        share = (time.perf_counter() - begun) / len(group)
        for (number, steps), output in zip(group.items(), each_of(executor.run, feeds, outputs), strict=True):
            seconds[number] += share
            if isinstance(output, Exception):
                results[number] = output
            else:
                resume(number, steps, output)
    return [results[number] for number in range(len(generators))], seconds
