"""A function of fixed shapes: captured once for each on CUDA, and called as it is elsewhere."""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from utils.device.captured import add_captured, add_failure
from utils.text import first_line

Tensors = tuple[Tensor, ...]
_WARM_UPS = 2
_log = logging.getLogger(__name__)


@cache
def _say_once(reason: str) -> None:
    """One line for each reason, however many functions it stops."""
    _log.warning("called without a CUDA graph from now on, which could not be captured: %s", reason)


@dataclass(slots=True)
class _Captured:
    """One graph, the tensors that it reads and those that it writes."""

    graph: Any
    inputs: Tensors
    outputs: Tensors

    def replay(self, inputs: Tensors) -> Tensors:
        for buffer, new in zip(self.inputs, inputs, strict=True):
            if buffer is not new:
                buffer.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.outputs


class Graphed:
    """Calls `function(*tensors) -> tensors`, which reads nothing back and whose shapes follow from its inputs' alone.

    On CUDA the first call of a shape captures it as a graph, and every later one copies its inputs into the graph's own
    and replays it. Where capturing fails, `reason` says why, and the function is called as it is from then on.
    Elsewhere it is called as it is always.

    What a call returns holds until the next call of the same shape. Off CUDA the next call overwrites it with NaN, or
    the lowest number of its kind, so that whoever keeps it longer is found out on any machine.

    capture_s: seconds that capturing took so far, which belong to no round.
    """

    def __init__(self, function: Callable[..., Tensors], device: torch.device) -> None:
        self._function = function
        self._device, self._capturing = device, device.type == "cuda"
        self._captured: dict[Hashable, _Captured] = {}
        self._given: dict[Hashable, Tensors] = {}
        self.capture_s = 0.0
        self.reason = ""

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> Tensors:
        key = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if not self._capturing:
            return self._called(key, inputs)
        if key not in self._captured:
            self._capture(key, inputs)
            if not self._capturing:
                return self._function(*inputs)
        return self._captured[key].replay(inputs)

    @property
    def shapes(self) -> int:
        """How many shapes were captured, or called where nothing is."""
        return len(self._captured) or len(self._given)

    def _called(self, key: Hashable, inputs: Tensors) -> Tensors:
        for earlier in self._given.pop(key, ()):
            earlier.fill_(torch.nan if earlier.is_floating_point() else torch.iinfo(earlier.dtype).min)
        outputs = self._given[key] = self._function(*inputs)
        return outputs

    def _capture(self, key: Hashable, inputs: Tensors) -> None:
        began = time.perf_counter()
        buffers = tuple(tensor.clone() for tensor in inputs)
        try:
            with torch.cuda.device(self._device):
                self._captured[key] = _recorded(self._function, buffers)
                torch.cuda.synchronize()
        except RuntimeError as error:
            cause = _first_cause(error)
            if isinstance(cause, torch.cuda.OutOfMemoryError):
                raise cause from None
            self._capturing, self.reason = False, first_line(cause)
            add_failure(self.reason)
            _say_once(self.reason)
            return
        took = time.perf_counter() - began
        self.capture_s += took
        add_captured(took)


def _recorded(function: Callable[..., Tensors], buffers: Tensors) -> _Captured:
    """A graph on the current device; where that fails, later work goes where it went before all the same."""
    here = torch.cuda.current_stream()
    warming, capturing = _streams(torch.cuda.current_device())
    try:
        warming.wait_stream(here)
        with torch.cuda.stream(warming):
            for _ in range(_WARM_UPS):
                function(*buffers)
        here.wait_stream(warming)
        graph = torch.cuda.CUDAGraph()
        # Only what this thread does breaks a capture: a compiler's threads may use the device meanwhile.
        with torch.cuda.graph(graph, stream=capturing, capture_error_mode="thread_local"):
            outputs = function(*buffers)
    finally:
        torch.cuda.set_stream(here)
    return _Captured(graph, buffers, outputs)


@cache
def _streams(device: int) -> tuple[Any, Any]:
    """Where functions are warmed up and where they are captured: each stream has a workspace that products keep."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _first_cause(error: Exception) -> Exception:
    """What went wrong in the first place: ending a broken capture raises as well."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return error
