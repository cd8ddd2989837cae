"""Which of two kernels is faster: they take turns until the answer stands, or until the time is up.

Other load only ever adds time, so the fastest pass of each counts; and a choice between kernels lasts, so no
single busy moment may decide it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.kernels.linear import Kernel, Linear

ROWS = (1, 5)
CPU = torch.device("cpu")
_LAYERS = 16

LIMIT_S = 2.0
_TURNS, _AGAINST_TURNS = 8, 24
_SPREAD = 1.05

Times = Sequence[float]
"""Seconds of a pass, for each of `ROWS` rows."""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """What a race came to. settled False: the time was up first, and the answer is the one known to be better."""

    answer: bool
    settled: bool


def autotune(
    turn: Callable[[], Sequence[Times]],
    decide: Callable[[Sequence[Times]], bool],
    otherwise: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> TrialVerdict:
    """Repeat turns until the fastest passes have decided the same for half of them and have been reached twice.

    turn: one pass of each contender. decide: the answer from the fastest passes so far. otherwise: the answer that is
    known to be better; it stands where `LIMIT_S` seconds settle nothing, and more turns are asked to overturn it.
    """
    turns: list[Sequence[Times]] = []
    answers: list[bool] = []
    start = clock()
    while not turns or clock() - start < LIMIT_S:
        turns.append(turn())
        fastest, firm = _fastest(turns)
        answers.append(decide(fastest))
        needed = _TURNS if answers[-1] is otherwise else _AGAINST_TURNS
        if firm and len(turns) >= needed and len(set(answers[-needed // 2 :])) == 1:
            return TrialVerdict(answers[-1], True)
    return TrialVerdict(otherwise, False)


def _fastest(turns: Sequence[Sequence[Times]]) -> tuple[list[Times], bool]:
    """The fastest pass of each contender and row count, and whether the second fastest of each is as good."""
    sides = [list(zip(*side, strict=True)) for side in zip(*turns, strict=True)]
    ranked = [[sorted(passes)[:2] for passes in side] for side in sides]
    firm = all(best[-1] <= _SPREAD * best[0] for side in ranked for best in side)
    return [tuple(best[0] for best in side) for side in ranked], firm


class KernelTrial:
    """Stacks of layers that take turns.

    A stack is larger than the device's caches: in a model every weight comes from memory, and a single warm layer would
    favour the wrong kernel. size: outputs and inputs of a layer.
    """

    def __init__(
        self,
        contenders: Sequence[tuple[Kernel, torch.dtype]],
        device: torch.device = CPU,
        size: tuple[int, int] = (1536, 576),
    ) -> None:
        outputs, inputs = size
        self._sides = [
            (
                [kernel(weight.clone()) for _ in range(_LAYERS)],
                [_chance(count, inputs, dtype).to(device) for count in ROWS],
            )
            for kernel, dtype in contenders
            for weight in [_chance(outputs, inputs, dtype).to(device)]
        ]
        self._forward = True

    def turn(self) -> list[Times]:
        """Seconds of one pass of each contender for each row count; who begins alternates."""
        order = range(len(self._sides))
        self._forward = not self._forward
        times = {place: self._passes(place) for place in (order if self._forward else reversed(order))}
        return [times[place] for place in order]

    def _passes(self, place: int) -> Times:
        layers, inputs = self._sides[place]
        return tuple(_pass_s(layers, x) for x in inputs)


def _chance(count: int, inputs: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(count)).to(dtype)


def _pass_s(layers: Sequence[Linear], x: Tensor) -> float:
    _wait(x.device)
    start = time.perf_counter()
    for layer in layers:
        layer(x)
    _wait(x.device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
