"""One probe: something small of ours on the device, beside what it ought to give."""

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from utils.provenance import ROOT

_TURNS = 3

Numbers = dict[str, Any]


class TooFar(Exception):
    """A result is further from what it ought to be than rounding explains. numbers: see `compared`."""

    def __init__(self, numbers: Numbers, bound: float) -> None:
        super().__init__(f"off by {numbers['share']:.2g} of the largest number; expected {bound:g} or less")
        self.numbers = numbers


class Wrong(Exception):
    """What ought to hold does not."""


@dataclass(frozen=True, slots=True)
class ProbeDevice:
    """Where probes compute. tiny: small sizes, for a CPU. Cards compute in bfloat16, CPUs in float32."""

    device: torch.device
    tiny: bool = False

    @property
    def card(self) -> bool:
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.card else torch.float32

    @property
    def bound(self) -> float:
        """How far a result may be from a precise one, in shares of its largest number."""
        return 0.03 if self.card else 1e-4

    def drawn(self, *size: int, seed: int = 0, dtype: torch.dtype | None = None) -> Tensor:
        """Normal numbers, the same ones each time."""
        chance = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(*size, generator=chance, device=self.device, dtype=torch.float32).to(dtype or self.dtype)


@dataclass(frozen=True, slots=True)
class Probe:
    """run: what it measures; it raises where that fails. of: what of ours it calls, named where a number is wrong."""

    name: str
    of: Callable[..., Any]
    run: Callable[[], Numbers]

    @property
    def place(self) -> str:
        """Where what it calls begins: `sampling/forward/kernels/attention.py:26 in grouped_attention`."""
        code = inspect.unwrap(self.of)
        path = Path(inspect.getsourcefile(code) or "").relative_to(ROOT).as_posix()
        return f"{path}:{inspect.getsourcelines(code)[1]} in {self.of.__qualname__}"


def compared(
    call: Callable[[], Tensor], expected: Tensor, on: ProbeDevice, bound: float | None = None, timed: bool = True
) -> Numbers:
    """The largest difference, its share of the largest expected number, and the milliseconds of a call.

    bound: of the share (default: the device's). Raises `TooFar` beyond it, and where a number is none.
    """
    found, wide = call().double(), expected.double()
    difference, largest = float((found - wide).abs().max()), float(wide.abs().max())
    share = difference / largest if math.isfinite(difference) else math.inf
    numbers = {"difference": difference, "share": share}
    if share > (limit := on.bound if bound is None else bound):
        raise TooFar(numbers, limit)
    return {**numbers, "ms": _milliseconds(call, on)} if timed else numbers


def _milliseconds(call: Callable[[], Tensor], on: ProbeDevice) -> float:
    """Of one call, the device waited for: the median of three."""
    took = []
    for _ in range(_TURNS):
        began = time.perf_counter()
        call()
        settle(on)
        took.append(1e3 * (time.perf_counter() - began))
    return median(took)


def settle(on: ProbeDevice) -> None:
    """Wait for the device; what was queued and failed is raised here."""
    if on.card:
        torch.cuda.synchronize(on.device)
