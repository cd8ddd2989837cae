"""A stop-watch for the phases of a round that never waits for the device more than once."""

import time
from typing import Any

import torch

from utils.device.captured import captured_s

CAPTURE = "capture"


class PhaseClock:
    """Time between laps, added up by phase name; what capturing graphs took meanwhile is a phase of its own, `CAPTURE`.

    On a CPU a lap reads the host's clock. On CUDA a lap records an event in the stream, which costs no
    synchronisation; `stop` waits for the last one and reads them all. Events are used again by the next measurement.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any, float]] = []
        self._events: list[Any] = []

    def start(self) -> None:
        """Begin a new measurement."""
        self._marks.clear()
        self.lap("")

    def lap(self, phase: str) -> None:
        """Count the time since the last mark to `phase`."""
        self._marks.append((phase, self._mark(), captured_s()))

    def stop(self) -> dict[str, float]:
        """Seconds by phase since `start`."""
        if self._cuda:
            self._wait()
        seconds = {CAPTURE: self._marks[-1][2] - self._marks[0][2]}
        for (_, before, had), (phase, after, has) in zip(self._marks, self._marks[1:], strict=False):
            took = self._seconds(before, after) - (has - had)
            seconds[phase] = seconds.get(phase, 0.0) + max(0.0, took)
        return seconds

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        if len(self._events) == len(self._marks):
            self._events.append(torch.cuda.Event(enable_timing=True))
        event = self._events[len(self._marks)]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _wait(self) -> None:
        """Until the device has come to the last mark."""
        self._marks[-1][1].synchronize()

    def _seconds(self, before: Any, after: Any) -> float:
        return float(before.elapsed_time(after)) / 1e3 if self._cuda else after - before
