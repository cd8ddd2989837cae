"""The steps between the products, compiled ahead of time by torch's inductor and kept in the user's cache folder.

A step of a small model is a dozen small operations, and calling them takes longer than computing them. A compiled step
is one call. Its loops run row by row on one thread, so that a row comes out the same whatever is computed with it.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.forward.blocks import Blocks
from sampling.forward.cache import RollbackCache
from sampling.forward.linear import Arithmetic, Prepared
from sampling.forward.steps import Ends, Heads, Norm, Steps
from utils.errors import UserError
from utils.files import cache_folder
from utils.provenance import cpu_name
from utils.text import first_line

_ROWS = 5
_MOST_ROWS = 1 << 20
_TOLERANCE = 0.02
_SOURCES = ("compiled", "steps", "linear", "int8", "int4", "q8_0")

Rows = tuple[Tensor, ...]
Absent = tuple[Tensor | None, ...]
Products = tuple[Arithmetic, ...]
Key = tuple[str, tuple[bool, ...], Products]
Run = Callable[[list[Tensor]], list[Tensor]]


def _key(step: str, weights: Absent, products: Products) -> Key:
    return step, tuple([weight is not None for weight in weights]), products


@dataclass(frozen=True, slots=True)
class _Call:
    """A step with its row tensors, its weights, of which some may be absent, and the arithmetics of its products."""

    step: str
    rows: Rows
    weights: Absent
    products: Products

    @property
    def key(self) -> Key:
        return _key(self.step, self.weights, self.products)

    @property
    def tensors(self) -> list[Tensor]:
        return [*self.rows, *(weight for weight in self.weights if weight is not None)]

    def filled(self, tensors: Sequence[Tensor]) -> "_Call":
        """The same step of other tensors, in the order of `tensors`."""
        left = iter(tensors[len(self.rows) :])
        weights = tuple(None if weight is None else next(left) for weight in self.weights)
        return _Call(self.step, tuple(tensors[: len(self.rows)]), weights, self.products)


class _Flat(Steps):
    """Steps as calls of flat lists of tensors, which is what a compiled one takes and gives.

    `leave` stays as it is: a forward calls it once.
    """

    __slots__ = ()

    def call(self, step: str, rows: Rows, weights: Absent = (), products: Products = ()) -> list[Tensor]:
        """What the step gives: see `_Call`."""
        raise NotImplementedError

    def enter(self, x: Tensor, into: Ends) -> Prepared:
        return tuple(self.call("enter", (x,), (), (into.arithmetic,)))

    def turn(
        self, raw: Tensor, rest: Prepared, of: Ends, norms: tuple[Norm | None, Norm | None], cos: Tensor, sin: Tensor
    ) -> Heads:
        weights = of.added, _weight(norms[0]), _weight(norms[1])
        query, keys, values = self.call("turn", (raw, *rest, cos, sin), weights, (of.arithmetic,))
        return query, keys, values

    def join(
        self, x: Tensor, raw: Tensor, rest: Prepared, of: Ends, norm: Norm | None, into: Ends
    ) -> tuple[Tensor, Prepared]:
        products = of.arithmetic, into.arithmetic
        joined, *entered = self.call("join", (x, raw, *rest), (of.added, _weight(norm)), products)
        return joined, tuple(entered)

    def gate(self, raw: Tensor, rest: Prepared, of: Ends, into: Ends) -> Prepared:
        return tuple(self.call("gate", (raw, *rest), (of.added,), (of.arithmetic, into.arithmetic)))


def _weight(norm: Norm | None) -> Tensor | None:
    return None if norm is None else norm.weight


@dataclass(frozen=True, slots=True)
class _Formulas(_Flat):
    """The steps as formulas of tensors alone; seen: an example of each, for the compiler."""

    eps: float
    seen: dict[Key, _Call]

    def call(self, step: str, rows: Rows, weights: Absent = (), products: Products = ()) -> list[Tensor]:
        one = _Call(step, rows, weights, products)
        self.seen.setdefault(one.key, one)
        return self.result(one)

    def result(self, one: _Call) -> list[Tensor]:
        """What a step gives, by its formula."""
        steps = _Loops(self.shape)
        of = _End(one.products[0], one.weights[0] if one.weights else None)
        into = _End(one.products[-1], None)
        norms: list[Any] = [None if weight is None else _Formula(weight, self.eps) for weight in one.weights[1:]]
        match one.step, one.rows:
            case "enter", (x,):
                return list(steps.enter(x, into))
            case "turn", (raw, *rest, cos, sin):
                return list(steps.turn(raw, tuple(rest), of, (norms[0], norms[1]), cos, sin))
            case "join", (x, raw, *rest):
                joined, entered = steps.join(x, raw, tuple(rest), of, norms[0], into)
                return [joined, *entered]
            case "gate", (raw, *rest):
                return list(steps.gate(raw, tuple(rest), of, into))
        raise ValueError(one.step)


@dataclass(frozen=True, slots=True)
class _End:
    """See `Ends`."""

    arithmetic: Arithmetic
    added: Tensor | None


class _Loops(Steps):
    """Steps without what is there for single operations' sake."""

    __slots__ = ()

    def gated(self, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        return F.silu(gate) * up


class _Formula:
    """RMSNorm without what `Norm` does for single operations' sake."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        return (wide * scale * self._weight.float()).to(x.dtype)


@dataclass(frozen=True, slots=True)
class CompiledSteps(_Flat):
    """Steps that were compiled for the sizes and the number format of one model."""

    runs: dict[Key, Run]

    def call(self, step: str, rows: Rows, weights: Absent = (), products: Products = ()) -> list[Tensor]:
        there = [weight for weight in weights if weight is not None]
        return self.runs[_key(step, weights, products)]([*rows, *there])


class _Module(nn.Module):
    """A step, as the exporter takes it."""

    def __init__(self, formulas: _Formulas, one: _Call) -> None:
        super().__init__()
        self._formulas, self._one = formulas, one

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        return self._formulas.result(self._one.filled(tensors))


def compiler() -> str | None:
    """The C++ compiler that torch would call; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


@torch.inference_mode()
def compiled(blocks: Blocks, tell: Callable[[float], None]) -> Blocks:
    """The same blocks with compiled steps: those of the cache folder, or, for about a minute, made now.

    tell: told the part that is done, where something has to be made. Raises `UserError` where there is no compiler,
    or what it made is not right.
    """
    if compiler() is None:
        raise UserError("no C++ compiler is found; expected g++, or what the environment variable CXX names")
    formulas = _examples(blocks)
    runs: dict[Key, Run] = {}
    for number, (key, one) in enumerate(formulas.seen.items()):
        path = cache_folder() / "compiled" / f"{_name(formulas, one)}.pt2"
        if not path.is_file():
            tell(number / len(formulas.seen))
        runs[key] = _kept(path) or _made(formulas, one, path)
    return replace(blocks, compiled=CompiledSteps(formulas.shape, runs))


def _examples(blocks: Blocks) -> _Formulas:
    """The steps that these blocks call, each with the tensors of a forward of a few rows."""
    first = blocks.layers[0]
    formulas = _Formulas(blocks.shape, first.mlp_norm.eps, {})
    cache = RollbackCache(len(blocks.layers), blocks.cos.device, blocks.cos.dtype)
    x = torch.randn(_ROWS, len(first.mlp_norm.weight), generator=torch.Generator().manual_seed(0)).to(blocks.cos.dtype)
    for _ in replace(blocks, compiled=formulas).run(x, torch.arange(_ROWS), cache.mask(_ROWS), cache):
        pass
    return formulas


def _name(formulas: _Formulas, one: _Call) -> str:
    """What tells this step from all others: the model's sizes, the machine, torch, and the source."""
    tensors = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in one.tensors]
    machine = cpu_name(), torch.backends.cpu.get_cpu_capability(), torch.__version__, torch.version.git_version
    products = [product.name for product in one.products]
    told = repr((one.key[:2], products, tensors, formulas.shape, formulas.eps, machine)).encode()
    sources = (Path(__file__).with_name(f"{name}.py").read_bytes() for name in _SOURCES)
    return f"{one.step}-{hashlib.sha256(b''.join([told, *sources])).hexdigest()[:24]}"


def _kept(path: Path) -> Run | None:
    """What was compiled earlier; None where that is not there, or damaged: a loader checks no sums."""
    try:
        with ZipFile(path) as package:
            if package.testzip() is not None:
                return None
        run: Run = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1).run
    except (RuntimeError, OSError, BadZipFile):
        return None
    return run


def _made(formulas: _Formulas, one: _Call, path: Path) -> Run:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as scratch:
            step = Path(_compile(formulas, one, f"{scratch}/step.pt2"))
            run = _kept(step)
            if run is None or not _right(formulas, one, run):
                raise UserError(f"the compiled step {one.step!r} does not give what its formula gives")
            step.replace(path)
    except (RuntimeError, OSError, ImportError) as error:
        raise UserError(f"the step {one.step!r} cannot be compiled: {first_line(error)}") from error
    return run


def _compile(formulas: _Formulas, one: _Call, package: str) -> str:
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns of a missing GPU
    from torch._inductor import aoti_compile_and_package

    count = torch.export.Dim("n", min=1, max=_MOST_ROWS)
    rows = [{0: count if len(tensor) == _ROWS else 2 * count} for tensor in one.rows]
    dynamic = (*rows, *({} for _ in one.tensors[len(rows) :]))
    given = tuple(tensor.clone() for tensor in one.tensors)
    exported = torch.export.export(_Module(formulas, one), given, dynamic_shapes=(dynamic,))
    settings = {"cpp.threads": 1, "cpp.cxx": (None, compiler())}
    return str(aoti_compile_and_package(exported, package_path=package, inductor_configs=settings))


def _right(formulas: _Formulas, one: _Call, run: Run) -> bool:
    """Whether it gives what the formula gives, to rounding, and every row alone what it gives among others."""
    found, expected = run(one.tensors), formulas.result(one)
    near = all(_near(a, b) for a, b in zip(found, expected, strict=True))
    return near and all(_same_alone(one, found, run, row) for row in range(_ROWS))


def _near(found: Tensor, expected: Tensor) -> bool:
    return bool((found.float() - expected.float()).norm() <= _TOLERANCE * expected.float().norm())


def _same_alone(one: _Call, found: Sequence[Tensor], run: Run, row: int) -> bool:
    rows = [tensor[row::_ROWS].contiguous() for tensor in one.rows]
    alone = run([*rows, *one.tensors[len(rows) :]])
    return all(torch.equal(a, b[row::_ROWS]) for a, b in zip(alone, found, strict=True))
