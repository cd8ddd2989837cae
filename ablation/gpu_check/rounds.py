"""Rounds of the decode loop: how long one takes, and what it asks of the device."""

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from utils.events import Round
from utils.provenance import ROOT

WARM_UP = 8
"""Rounds that are not measured: graphs are captured in them, and the allocator learns what is asked of it."""
_PROFILED, _WATCHED, _SHOWN = 6, 8, 8
_WAITS = "synchroniz"  # in torch's warning of an operation that waits for the device


@dataclass(frozen=True, slots=True)
class RoundPace:
    """Milliseconds of a round, medians behind the warm-up, and what it brought.

    ms: on the wall clock, from the end of a round to that of the next. draft_ms, verify_ms, other_ms: as the loop's own
    clock divides it, without what capturing took. token_ms: all measured rounds over their tokens.
    """

    ms: float
    draft_ms: float
    verify_ms: float
    other_ms: float
    token_ms: float
    tokens_a_round: float
    drafts_a_round: float
    rounds: int

    @classmethod
    def of(cls, rounds: list[tuple[float, Round]]) -> "RoundPace":
        """rounds: when each of them was over, seconds; the first is where measuring begins."""
        made = [round for _, round in rounds[1:]]
        gaps = [1e3 * (after - before) for (before, _), (after, _) in pairwise(rounds)]
        tokens = sum(len(round.emitted) for round in made)
        return cls(
            ms=median(gaps),
            draft_ms=1e3 * median(round.draft_s for round in made),
            verify_ms=1e3 * median(round.verify_s for round in made),
            other_ms=1e3 * median(round.other_s for round in made),
            token_ms=median(gaps) * len(made) / tokens,
            tokens_a_round=tokens / len(made),
            drafts_a_round=mean(len(round.drafts) for round in made),
            rounds=len(made),
        )


def settings_of(length: int, **assignments: str) -> Settings:
    """Greedy decoding of so many tokens, what drafts in the target's number format, and these values."""
    settings = Settings()
    settings.assign_all({"length": str(length), "draft_weights": "full", **assignments}.items())
    return settings


def pace(
    engine: PairEngine, method: str, values: Mapping[str, Any], prompt: list[int], warm_up: int = WARM_UP
) -> RoundPace:
    """How fast a method's rounds are. Raises `ValueError` where the answer has too few of them."""
    seen = [(time.perf_counter(), round) for round in _rounds(engine, method, values, prompt)]
    if len(seen) < warm_up + 2:
        raise ValueError(f"{len(seen)} rounds of {method}; expected more than the {warm_up} of the warm-up")
    return RoundPace.of(seen[warm_up - 1 :])


def waits(engine: PairEngine, method: str, values: Mapping[str, Any], prompt: list[int]) -> dict[str, Any] | None:
    """How often a round waits for the device, and at which lines; None on a CPU, for which nobody waits."""
    if not _on_cuda(engine):
        return None
    counts, seen = [], list[warnings.WarningMessage]()
    rounds = _rounds(engine, method, values, prompt)
    for _ in range(WARM_UP):
        next(rounds)
    with _told_of_waits() as warnings_seen:
        for _ in range(_WATCHED):
            before = len(warnings_seen)
            next(rounds)
            seen += (new := [warning for warning in warnings_seen[before:] if _WAITS in str(warning.message)])
            counts.append(len(new))
    places = Counter(_place(warning) for warning in seen)
    return {"a_round": median(counts), "most": max(counts), "places": _shares(places, _WATCHED)}


def launches(engine: PairEngine, method: str, values: Mapping[str, Any], prompt: list[int]) -> dict[str, Any] | None:
    """Kernels and calls of the driver in a round, and the kernels that take longest, in milliseconds; None on a CPU."""
    if not _on_cuda(engine):
        return None
    rounds = _rounds(engine, method, values, prompt)
    for _ in range(WARM_UP):
        next(rounds)
    began = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(_PROFILED):
            next(rounds)
    wall_ms = 1e3 * (time.perf_counter() - began) / _PROFILED
    calls, kernels, busy = Counter[str](), 0, Counter[str]()
    for event in profiled.events() or ():
        if event.device_type == DeviceType.CUDA:
            kernels += 1
            busy[event.name] += event.time_range.elapsed_us()
        elif event.name.startswith(("cuda", "cuLaunch")):
            calls[event.name] += 1
    return {
        "kernels": kernels / _PROFILED,
        "calls": _shares(calls, _PROFILED),
        "busy_ms": busy.total() / 1e3 / _PROFILED,
        "wall_ms": wall_ms,
        "longest_ms": {name: took / 1e3 / _PROFILED for name, took in busy.most_common(_SHOWN)},
    }


def _rounds(engine: PairEngine, method: str, values: Mapping[str, Any], prompt: list[int]) -> Iterator[Round]:
    return (event for event in engine.stream(method, values, prompt) if isinstance(event, Round))


def _on_cuda(engine: PairEngine) -> bool:
    return engine.pair.target.device.type == "cuda"


@contextmanager
def _told_of_waits() -> Iterator[list[warnings.WarningMessage]]:
    """What torch warns of while it says where the host waits for the device."""
    with warnings.catch_warnings(record=True) as warnings_seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield warnings_seen
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _place(warning: warnings.WarningMessage) -> str:
    path = Path(warning.filename)
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{warning.lineno}"


def _shares(counts: Counter[str], rounds: int) -> dict[str, float]:
    return {name: count / rounds for name, count in counts.most_common()}
