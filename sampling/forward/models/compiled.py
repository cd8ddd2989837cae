"""The steps between the products, compiled ahead of time by torch's inductor and kept in the user's cache folder.

A step of a small model is a dozen small operations, and calling them takes longer than computing them. A compiled step
is one call. Its loops run row by row on one thread, so that a row comes out the same whatever is computed with it.
"""

import hashlib
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

import torch
from torch import Tensor, nn

from sampling.forward.cpp import vnni
from sampling.forward.cpp.library import compiler
from sampling.forward.kernels import int4, int8, linear, q8_0
from sampling.forward.models import flat, steps, swiglu
from sampling.forward.models.blocks import Blocks
from sampling.forward.models.flat import ROWS, Call, CompiledSteps, Formulas, Key, Run, examples, near
from utils.errors import UserError
from utils.files import cache_folder
from utils.provenance import cpu_name
from utils.text import first_line

_MOST_ROWS = 1 << 20
_SOURCES = (sys.modules[__name__], flat, steps, linear, int8, int4, q8_0, vnni, swiglu)


class _Module(nn.Module):
    """A step, as the exporter takes it."""

    def __init__(self, formulas: Formulas, call_seen: Call) -> None:
        super().__init__()
        self._formulas, self._one = formulas, call_seen

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        return self._formulas.result(self._one.filled(tensors))


@torch.inference_mode()
def compiled(blocks: Blocks, tell: Callable[[float], None]) -> Blocks:
    """The same blocks with compiled steps: those of the cache folder, or, for about a minute, made now.

    tell: told the part that is done, where something has to be made. Raises `UserError` where there is no compiler,
    or what it made is not right.
    """
    if compiler() is None:
        raise UserError("no C++ compiler is found; expected g++, or what the environment variable CXX names")
    formulas = examples(blocks)
    runs: dict[Key, Run] = {}
    for number, (key, call) in enumerate(formulas.seen.items()):
        path = cache_folder() / "compiled" / f"{_name(formulas, call)}.pt2"
        if not path.is_file():
            tell(number / len(formulas.seen))
        runs[key] = _kept(path) or _made(formulas, call, path)
    return replace(blocks, compiled=CompiledSteps(formulas.shape, runs))


def _name(formulas: Formulas, call: Call) -> str:
    """What tells this step from all others: the model's sizes, the machine, torch, and the source."""
    tensors = [(tuple(tensor.shape), str(tensor.dtype)) for tensor in call.tensors]
    machine = cpu_name(), torch.backends.cpu.get_cpu_capability(), torch.__version__, torch.version.git_version
    products = [product.name for product in call.products]
    about = repr(
        (call.key[:2], products, tensors, formulas.shape, formulas.norm.eps, formulas.norm.centred, machine)
    ).encode()
    sources = (inspect.getsource(module).encode() for module in _SOURCES)
    return f"{call.step}-{hashlib.sha256(b''.join([about, *sources])).hexdigest()[:24]}"


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


def _made(formulas: Formulas, call: Call, path: Path) -> Run:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as scratch:
            step = Path(_compile(formulas, call, f"{scratch}/step.pt2"))
            run = _kept(step)
            if run is None or not _right(formulas, call, run):
                raise UserError(f"the compiled step {call.step!r} does not give what its formula gives")
            step.replace(path)
    except (RuntimeError, OSError, ImportError) as error:
        raise UserError(f"the step {call.step!r} cannot be compiled: {first_line(error)}") from error
    return run


def _compile(formulas: Formulas, call: Call, package: str) -> str:
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns of a missing GPU
    from torch._inductor import aoti_compile_and_package

    count = torch.export.Dim("n", min=1, max=_MOST_ROWS)
    rows = [{0: count if len(tensor) == ROWS else 2 * count} for tensor in call.rows]
    dynamic = (*rows, *({} for _ in call.tensors[len(rows) :]))
    inputs = tuple(tensor.clone() for tensor in call.tensors)
    exported = torch.export.export(_Module(formulas, call), inputs, dynamic_shapes=(dynamic,))
    settings = {"cpp.threads": 1, "cpp.cxx": (None, compiler())}
    return str(aoti_compile_and_package(exported, package_path=package, inductor_configs=settings))


def _right(formulas: Formulas, call: Call, run: Run) -> bool:
    """Whether it gives what the formula gives, to rounding, and every row alone what it gives among others."""
    outputs, expected = run(call.tensors), formulas.result(call)
    alike = all(near(a, b) for a, b in zip(outputs, expected, strict=True))
    return alike and all(_same_alone(call, outputs, run, row) for row in range(ROWS))


def _same_alone(call: Call, outputs: Sequence[Tensor], run: Run, row: int) -> bool:
    rows = [tensor[row::ROWS].contiguous() for tensor in call.rows]
    alone = run([*rows, *call.tensors[len(rows) :]])
    return all(torch.equal(a, b[row::ROWS]) for a, b in zip(alone, outputs, strict=True))
