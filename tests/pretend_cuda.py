"""A CUDA device that is none: tensors say `cuda:0` and compute on the CPU, and every crossing is written down.

A crossing is a copy from one side to the other that waits for all that was begun on the device: reading a tensor, and
sending one from memory that may be paged out. Tensors of both sides in one operation raise, as they would on CUDA.
"""

import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from sampling.forward.graphs import sequence_graphs
from utils.device import sent, timing

ROOT = str(Path(__file__).parent.parent)
Kind = Literal["read", "sent", "kernel", "queued", "replay"]
# Whole functions of the device's own, which must not be taken apart.
WHOLE = {"scaled_dot_product_attention", "linear", "rms_norm", "device"}
FREE = {
    "device",
    "_unsafe_view",
    "lift_fresh",
    "empty",
    "empty_strided",
    "new_empty",
    "empty_like",
    "detach",
    "detach_",
    "alias",
}
_READS = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim"}


@dataclass
class Crossings:
    """What crossed or ran, by kind, with the operation and the line of the project that asked for it."""

    found: list[tuple[Kind, str, str]] = field(default_factory=list)
    on: bool = False

    def note(self, kind: Kind, operation: str) -> None:
        """Write one down, while it is on."""
        if self.on:
            self.found.append((kind, operation, _line()))

    def count(self, kind: Kind) -> int:
        """How many of a kind."""
        return sum(one[0] == kind for one in self.found)

    def told(self) -> str:
        """Those that wait, each with how often."""
        waits = Counter(one for one in self.found if one[0] in ("read", "sent"))
        return "\n".join(f"{times} x {' '.join(one)}" for one, times in waits.most_common())


LOG = Crossings()


class Pretend(Tensor):
    """A tensor of the pretended device; `elem` is where its numbers are."""

    elem: Tensor

    @staticmethod
    def __new__(cls, elem: Tensor) -> "Pretend":
        with torch.inference_mode(False):  # else a view of one that was made outside could not be told from it
            made: Pretend = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                elem.size(),
                strides=elem.stride(),
                storage_offset=elem.storage_offset(),
                dtype=elem.dtype,
                device="cuda:0",
            )
        return made

    def __init__(self, elem: Tensor) -> None:
        self.elem = elem

    def tolist(self) -> Any:
        LOG.note("read", "tolist")
        return self.elem.tolist()

    def data_ptr(self) -> int:
        return self.elem.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.elem.untyped_storage()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _name(func) not in WHOLE:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        return _run(func, args, kwargs)


def _name(func: Any) -> str:
    return str(func._schema.name.split("::")[1])


def _bare(one: Any) -> Any:
    return one.elem if isinstance(one, Pretend) else one


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation: which side it is on, what it crosses, and its result on that side."""
    name = _name(func)
    if name == "device":
        return torch.device("cuda:0") if isinstance(args[0], Pretend) else args[0].device
    leaves = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    there = [one for one in leaves if isinstance(one, Pretend)]
    here = [one for one in leaves if not isinstance(one, Pretend)]
    device = kwargs.get("device")
    side = None if device is None else torch.device(device).type
    if not there and side != "cuda":
        return func(*args, **kwargs)
    _note(func, name, args, there, here, side)
    named = {
        key: torch.device("cpu") if key == "device" and value is not None else value for key, value in kwargs.items()
    }
    out = func(*tree_map(_bare, args), **tree_map(_bare, named))
    if (name == "_to_copy" and side == "cpu") or name in ("_local_scalar_dense", "equal"):
        return out
    schema = func._schema
    if schema.is_mutable and not func.is_view and len(schema.returns) == 1 and schema.arguments[0].is_write:
        return args[0]
    return tree_map(lambda one: Pretend(one) if isinstance(one, Tensor) else one, out)


def _note(func: Any, name: str, args: Any, there: Sequence[Tensor], here: Sequence[Tensor], side: str | None) -> None:
    copies = name in ("_to_copy", "copy_")
    if copies and here and (side == "cuda" or isinstance(args[0], Pretend)):
        LOG.note("sent", name)
    elif (
        (name == "_to_copy" and side == "cpu")
        or (name == "copy_" and not isinstance(args[0], Pretend))
        or name in _READS
    ):
        LOG.note("read", name)
    else:
        if there and any(one.dim() for one in here):
            if name not in ("index", "index_put", "index_put_"):
                raise RuntimeError(f"{name}: tensors on cuda and on the cpu, at {_line()}")
            LOG.note("sent", "an index on the cpu")
        if not func.is_view and name not in FREE:
            LOG.note("kernel", name)


def _line() -> str:
    for frame in reversed(traceback.extract_stack()[:-2]):
        if frame.filename.startswith(ROOT) and ".venv" not in frame.filename and "pretend_cuda" not in frame.filename:
            return f"{frame.filename.removeprefix(ROOT + '/')}:{frame.lineno}"
    return "?"


def _queued(made: Tensor, device: torch.device) -> Tensor:
    if isinstance(made, Pretend):
        return made
    LOG.note("queued", "copy")
    return Pretend(made)


def forget_kept() -> None:
    """Drop what is made once for a device: a device of one test is none of the next one's."""
    for made in (sequence_graphs.chain, sent.kept):
        made.cache_clear()


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device is there; what is made on `cuda:0` inside is pretended, and pinned copies count for nothing."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    torch._C._set_only_lift_cpu_tensors(True)
    torch._C._ensureCUDADeviceGuardSet()
    monkeypatch.setattr(sent, "_queued", _queued)
    monkeypatch.setattr(sent, "_pinned", Pretend)
    monkeypatch.setattr(timing.PhaseClock, "_mark", lambda self: time.perf_counter())
    monkeypatch.setattr(timing.PhaseClock, "_wait", lambda self: None)
    monkeypatch.setattr(timing.PhaseClock, "_seconds", lambda self, before, after: after - before)
    forget_kept()
    try:
        with _Mode():
            yield
    finally:
        forget_kept()
        LOG.on = False
        torch._C._set_only_lift_cpu_tensors(False)


@contextmanager
def watched() -> Iterator[Crossings]:
    """What crosses while it lasts."""
    LOG.found.clear()
    LOG.on = True
    try:
        yield LOG
    finally:
        LOG.on = False
