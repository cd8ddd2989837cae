"""Forwards that are asked for: a drafter says what it needs, and whoever drives it how many share a forward.

A drafter's work on one sequence is a generator: it yields each forward that it needs, is sent the result, and returns
what came of it. `alone` runs one such generator; `together` runs those of many sequences side by side, and what they
ask of one model at a time goes through it at once.
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
class Ask:
    """One sequence's part of a forward: what runs it, and what it feeds."""

    of: BatchExecutor
    feed: Any


Asking = Generator[Ask, Any, T]


class Sharing(ABC):
    """A runner whose forwards can be shared with other sequences."""

    @abstractmethod
    def asked(self, tokens: Any, parents: Sequence[int] | None, hidden: Sequence[int], rows: int | None) -> Ask:
        """`Runner.forward` as a part of one for many."""


def alone(asking: Asking[T]) -> T:
    """What one sequence's work comes to, every forward its own."""
    try:
        ask = next(asking)
        while True:
            ask = asking.send(ask.of.run([ask.feed])[0])
    except StopIteration as end:
        result: T = end.value
        return result


def together(askings: Sequence[Asking[T]]) -> tuple[list[T], list[float]]:
    """What each of several comes to; those that ask the same of one model share its forward.

    Then the host's seconds for each: its own, and its part of what it shared.
    """
    results: dict[int, T] = {}
    asked: dict[int, Ask] = {}
    seconds = [0.0] * len(askings)

    def go_on(number: int, found: Any = None) -> None:
        begun = time.perf_counter()
        try:
            asked[number] = askings[number].send(found)
        except StopIteration as end:
            results[number] = end.value
        seconds[number] += time.perf_counter() - begun

    for number in range(len(askings)):
        go_on(number)
    while asked:
        model = next(iter(asked.values())).of
        group = [number for number, ask in asked.items() if ask.of is model]
        feeds = [asked.pop(number).feed for number in group]
        begun = time.perf_counter()
        found = model.run(feeds)
        share = (time.perf_counter() - begun) / len(group)
        for number, one in zip(group, found, strict=True):
            seconds[number] += share
            go_on(number, one)
    return [results[number] for number in range(len(askings))], seconds
