"""What needs no draws: greedy answers by our referee, and log-probabilities beside our target's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.audit.expected import Target
from engines.home import ExternalEngine
from engines.server.served import ServedEngine
from utils.events import WholeAnswer

BEST, PLACES = 5, 8
_KERNELS = 1e-4
"""How far two programs may be apart in float32, beside what rounding does in one of them."""


@dataclass(frozen=True, slots=True)
class GreedyCheck:
    """A greedy answer, read by our target.

    place: the first token that is not the target's best beyond rounding; None: all are. behind: how far below the best
    a token lies at most, in logits.
    """

    method: str
    prompt: int
    tokens: int
    place: int | None
    behind: float
    drafted: int | None


@dataclass(frozen=True, slots=True)
class LogprobCheck:
    """Log-probabilities as an engine tells them, beside our target's: how far apart at most, over some places.

    rounding: what rounding may make of it.
    """

    method: str
    prompt: int
    places: int
    distance: float
    rounding: float

    @property
    def apart(self) -> bool:
        """Whether they differ beyond rounding."""
        return self.distance > self.rounding


def check_greedy(
    engine: ExternalEngine, name: str, method: str, values: Mapping[str, Any], prompt: Sequence[int], number: int
) -> GreedyCheck:
    """One greedy answer. Raises `UserError`."""
    (answer,) = engine.stream(method, values, prompt)
    assert isinstance(answer, WholeAnswer)
    verdict = engine.referee(prompt, answer.output_ids)
    return GreedyCheck(name, number, len(answer.output_ids), verdict.place, verdict.behind, answer.acceptance.drafted)


def check_logprobs(
    engine: ExternalEngine, name: str, method: str, values: Mapping[str, Any], prompt: Sequence[int], number: int
) -> LogprobCheck | None:
    """The best tokens of the first places; None of an engine that tells none. Raises `UserError`."""
    if not isinstance(engine, ServedEngine):
        return None
    ids, told = engine.top_logprobs(method, {**values, "length": PLACES}, prompt, BEST)
    if not told or len(told) != len(ids):
        return None
    target, distance, allowed = Target(engine.home), 0.0, _KERNELS
    for place, best in enumerate(told):
        ours, rounding = target.logprobs(prompt, ids[:place])
        distance = max(distance, *(abs(value - float(ours[token])) for token, value in best.items()))
        allowed = max(allowed, 4.0 * rounding)
    return LogprobCheck(name, number, len(told), distance, allowed)
