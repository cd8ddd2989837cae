"""A stop-watch for the phases of a round that never waits for the device more than once."""

import time
from typing import Any

import torch


class PhaseClock:
    """Time between laps, added up by phase name.

    On a CPU a lap reads the host's clock. On CUDA a lap records an event in the stream, which costs no
    synchronisation; `stop` waits once and reads them all.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any]] = []

    def start(self) -> None:
        """Begin a new measurement."""
        self._marks = [("", self._mark())]

    def lap(self, phase: str) -> None:
        """Count the time since the last mark to `phase`."""
        self._marks.append((phase, self._mark()))

    def stop(self) -> dict[str, float]:
        """Seconds by phase since `start`."""
        if self._cuda:
            torch.cuda.synchronize(self._device)
        seconds: dict[str, float] = {}
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            seconds[phase] = seconds.get(phase, 0.0) + self._seconds(before, after)
        return seconds

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _seconds(self, before: Any, after: Any) -> float:
        return float(before.elapsed_time(after)) / 1e3 if self._cuda else after - before
