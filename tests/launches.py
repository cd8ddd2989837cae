"""What a round queues on a CUDA device that is pretended: graphs as wholes, and every copy and kernel outside them.

Functions are captured there as on a card. A replay is one launch and runs the function again on the same buffers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import pytest
import torch

from tests.pretend_cuda import LOG, Crossings
from utils.device import graphed
from utils.device.graph_pool import GraphPool, Tensors
from utils.device.lasting import lasting

LAUNCHES = ("replay", "kernel", "queued", "read", "sent")


@dataclass
class Rerun:
    """What `torch.cuda.CUDAGraph` is here."""

    function: Callable[..., Tensors]
    inputs: Tensors
    outputs: Tensors

    def replay(self) -> None:
        LOG.note("replay", getattr(self.function, "__name__", "") or self.function.func.__name__)  # type: ignore[attr-defined]
        with unseen():
            for output, made in zip(self.outputs, self.function(*self.inputs), strict=True):
                output.copy_(made)


@contextmanager
def unseen() -> Iterator[None]:
    """Nothing is written down."""
    was, LOG.on = LOG.on, False
    try:
        yield
    finally:
        LOG.on = was


def _recorded(function: Callable[..., Tensors], inputs: Tensors, pool: GraphPool, changes: Tensors) -> object:
    before = [tensor.clone() for tensor in changes]
    outputs = tuple(lasting(made.clone()) for made in function(*inputs))
    for tensor, was in zip(changes, before, strict=True):
        tensor.copy_(was)
    return graphed._Captured(Rerun(function, inputs, outputs), inputs, outputs)


def capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on functions are captured on the pretended device."""
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    recorded_on = graphed._recorded_on

    def quietly(*about: object) -> object:
        with unseen():
            return recorded_on(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(graphed, "_recorded", _recorded)
    monkeypatch.setattr(graphed, "_recorded_on", quietly)


def launches(found: Crossings) -> int:
    """How many there were."""
    return sum(found.count(kind) for kind in LAUNCHES)  # type: ignore[arg-type]


def told(found: Crossings) -> str:
    """Each with how often."""
    return "\n".join(f"{times} x {' '.join(one)}" for one, times in Counter(found.found).most_common())
