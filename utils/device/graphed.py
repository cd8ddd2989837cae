"""A function of fixed shapes: captured once for each on CUDA, and called as it is elsewhere."""

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from utils.device.captured import add_captured, add_failure
from utils.device.graph_pool import GraphPool, Replayable, Tensors
from utils.device.lasting import address, lasting
from utils.device.sent import moved, written
from utils.device.spare import with_room
from utils.device.traced import our_lines
from utils.errors import UserError
from utils.text import first_line

_WARM_UPS = 2
_SURVIVES = "2.12"
"""The first version of torch whose allocator is whole after a capture that ended badly (pytorch#180395)."""
_log = logging.getLogger(__name__)
_numbers = count()


class CaptureBroken(UserError):
    """A capture ended badly, and torch's allocator still waits for its end: no graph can be captured any more."""

    def __init__(self, reason: str, version: str) -> None:
        super().__init__(
            f"a CUDA graph could not be captured ({reason}), after which torch {version} allocates no memory reliably: "
            "restart, with --graphs off"
        )


def captures(device: torch.device) -> bool:
    """Whether functions are captured there."""
    return device.type == "cuda"


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

    @property
    def held(self) -> Tensors:
        return *(tensor for tensor in self.inputs if address(tensor) is None), *self.outputs

    def replay(self, inputs: Tensors) -> Tensors:
        for buffer, new in zip(self.inputs, inputs, strict=True):
            if buffer.data_ptr() != new.data_ptr():
                written(buffer, new)
        self.graph.replay()
        return self.outputs


@dataclass(slots=True)
class _Called:
    """A function that is called as it is; what it returned last is overwritten first."""

    function: Callable[..., Tensors]
    held: Tensors = ()

    def replay(self, inputs: Tensors) -> Tensors:
        for earlier in self.held:
            _overwrite(earlier)
        self.held = self.function(*inputs)
        return self.held


def _overwrite(tensor: Tensor) -> None:
    if tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(torch.nan if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)


class Graphed:
    """Calls `function(*tensors) -> tensors`, which reads nothing back and whose shapes follow from its inputs' alone.

    On CUDA the first call of a shape captures it as a graph, and every later one copies its inputs into the graph's own
    and replays it. Inputs may lie on the host: they are copied from there. What another graph wrote, and whatever else
    is `lasting`, is read where it lies, and each address has a graph of its own. Where capturing fails, `reason` says
    why, and the function is called as it is from then on. Elsewhere it is called as it is always. Raises
    `CaptureBroken` where torch cannot go on after a failed capture.

    What a call returns holds until the next call of the same shape. Off CUDA the next call overwrites it with NaN, the
    lowest number of its kind or the other truth, so that whoever keeps it longer is found out on any machine.

    pool: where its graphs are held, with those of other functions (default: a pool of its own). changes: what the
    function changes in place; the calls of a capture leave no trace there. copies: all inputs are copied, wherever
    they lie: for what comes from many places.
    """

    def __init__(
        self,
        function: Callable[..., Tensors],
        device: torch.device,
        pool: GraphPool | None = None,
        changes: Tensors = (),
        copies: bool = False,
    ) -> None:
        self._function, self._changes = function, changes
        self._device, self._capturing = device, captures(device)
        self._reads_there = self._capturing and not copies
        self._pool, self._number = GraphPool() if pool is None else pool, next(_numbers)
        self.reason = ""

    @torch.inference_mode()
    def __call__(self, *inputs: Tensor) -> Tensors:
        if self.reason:
            return self._function(*self._there(inputs))
        key = self._number, *map(self._kind, inputs)
        graph = self._pool.get(key)
        if graph is None:
            graph = self._captured(inputs) if self._capturing else _Called(self._function)
            if graph is None:
                return self._function(*self._there(inputs))
            self._pool.add(key, graph)
        return graph.replay(inputs)

    def _kind(self, tensor: Tensor) -> tuple[Any, ...]:
        """What a graph knows of an input."""
        return tensor.shape, tensor.dtype, address(tensor) if self._reads_there else None

    def _there(self, inputs: Tensors) -> Tensors:
        """The inputs on the device."""
        return tuple(moved(tensor, self._device) for tensor in inputs)

    @property
    def shapes(self) -> int:
        """How many shapes are captured, or called where nothing is."""
        return sum(number == self._number for number, *_ in self._pool)

    def _captured(self, inputs: Tensors) -> Replayable | None:
        """The graph of these shapes; None where capturing fails."""
        began = time.perf_counter()
        self._pool.make_room()
        try:
            return with_room(partial(self._recorded, inputs))
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            cause = _first_cause(error)
            self.reason = first_line(cause)
            add_failure(self.reason, "".join(our_lines(cause)[-1:]))
            _say_once(self.reason)
            return None
        finally:
            add_captured(time.perf_counter() - began)

    def _recorded(self, inputs: Tensors) -> "_Captured":
        read_there = self._reads_there
        buffers = tuple(
            tensor if read_there and address(tensor) else moved(tensor, self._device).clone() for tensor in inputs
        )
        return _recorded_on(self._device, self._function, buffers, self._pool, self._changes)


def _recorded_on(
    device: torch.device, function: Callable[..., Tensors], buffers: Tensors, pool: GraphPool, changes: Tensors
) -> _Captured:
    """The graph of a function on a device. Raises `OutOfMemoryError` as what it is."""
    try:
        with torch.cuda.device(device), _uncollected():
            recorded = _recorded(function, buffers, pool, changes)
            torch.cuda.synchronize()
            return recorded
    except RuntimeError as error:
        if isinstance(cause := _first_cause(error), torch.OutOfMemoryError):
            raise cause from None
        raise


def _recorded(function: Callable[..., Tensors], buffers: Tensors, pool: GraphPool, changes: Tensors) -> _Captured:
    """A graph on the current device; where that fails, later work goes where it went before all the same."""
    here = torch.cuda.current_stream()
    warming, capturing = _streams(torch.cuda.current_device())
    before = [tensor.clone() for tensor in changes]
    try:
        warming.wait_stream(here)
        with torch.cuda.stream(warming):
            for _ in range(_WARM_UPS):
                outputs = function(*buffers)
                _restore(changes, before)
        here.wait_stream(warming)
        graph = torch.cuda.CUDAGraph()
        with _ending(capturing, graph, pool):
            for output, made in zip(outputs, function(*buffers), strict=True):
                output.copy_(made)
    finally:
        torch.cuda.set_stream(here)
        _restore(changes, before)
    return _Captured(graph, buffers, tuple(map(lasting, outputs)))


def _restore(changed: Tensors, before: Sequence[Tensor]) -> None:
    for tensor, was in zip(changed, before, strict=True):
        tensor.copy_(was)


_broken: list[str] = []


@contextmanager
def _ending(stream: Any, graph: Any, pool: GraphPool) -> Iterator[None]:
    """A capture. Raises `CaptureBroken` where its end failed and torch cannot go on, then and ever after."""
    if _broken:
        raise CaptureBroken(_broken[0], torch.__version__)
    inside: BaseException | None = None
    try:
        # Only what this thread does breaks a capture: a compiler's threads may use the device meanwhile.
        with torch.cuda.graph(graph, pool.handle(), stream, "thread_local"):
            try:
                yield
            except BaseException as error:
                inside = error
                raise
    except RuntimeError as error:
        if error is inside or TorchVersion(torch.__version__) >= _SURVIVES:
            raise
        _broken.append(first_line(_first_cause(error)))
        raise CaptureBroken(_broken[0], torch.__version__) from None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's collector: a graph that it destroys would end the capture of another."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@cache
def _streams(device: int) -> tuple[Any, Any]:
    """Where functions are warmed up and where they are captured: each stream has a workspace that products keep."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _first_cause(error: Exception) -> Exception:
    """What went wrong in the first place: ending a broken capture raises as well."""
    while isinstance(error.__context__, Exception):
        error = error.__context__
    return error
