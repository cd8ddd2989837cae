"""Attention in C++, compiled once for a width of heads and a number format, and kept in the user's cache folder.

It is used once it has given on this machine what the plain operations give, and every row alone what it gives among
others.
"""

import hashlib
import logging
import os
import shutil
import subprocess
from ctypes import CDLL, c_void_p
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch
from torch import Tensor

from sampling.forward.cpp.own import own_kernels
from sampling.forward.cpp.varlen import Attend, VarlenAttention
from sampling.forward.kernels.scores import PLAIN_SCORES, explicit_attention
from sampling.forward.models.steps import BlockShape
from utils.files import cache_folder
from utils.provenance import cpu_name
from utils.text import first_line

_SOURCE = Path(__file__).with_name("varlen.cpp")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-w")
_NUMBERS = {torch.float32: "float", torch.bfloat16: "bfloat16"}
_LANES, _WIDEST = 16, 256
_PATIENCE_S = 120
_ROWS, _COLUMNS = 5, 300
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02}
_log = logging.getLogger(__name__)


def compiler() -> str | None:
    """The C++ compiler that torch would call; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def varlen_kernel(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> Attend | None:
    """What `VarlenAttention` calls; None where it cannot be had."""
    if not own_kernels() or device.type != "cpu" or dtype not in _NUMBERS:
        return None
    fits = shape.head_dim % _LANES == 0 and 0 < shape.head_dim <= _WIDEST and shape.heads % shape.kv_heads == 0
    return _checked(dtype, shape.head_dim) if fits and compiler() is not None else None


@cache
@torch.inference_mode()
def _checked(dtype: torch.dtype, dim: int) -> Attend | None:
    """The kernel for heads of this width; None where it is not right, and a line says why."""
    try:
        kernel = _made(str(compiler()), _NUMBERS[dtype], dim)
        reason = _fault(kernel, dtype, dim)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        reason = first_line(getattr(error, "stderr", None) or str(error)) or type(error).__name__
    if reason is None:
        return kernel
    _log.warning("attention in C++ is not used: %s", reason)
    return None


def _fault(kernel: Attend, dtype: torch.dtype, dim: int) -> str | None:
    """What is wrong with it on a few rows that see two parts of the keys; None where nothing is."""
    chance = torch.Generator().manual_seed(0)
    query = torch.randn(_ROWS, 6, dim, generator=chance).to(dtype)
    keys, values = torch.randn(2, 1, 2, _COLUMNS, dim, generator=chance).to(dtype)
    seen = torch.ones(_ROWS, _COLUMNS, dtype=torch.bool).tril(_COLUMNS - _ROWS)
    seen[1:, _COLUMNS - _ROWS] = False  # a tree: the others hang beside the first
    fed = SimpleNamespace(start=_COLUMNS - _ROWS, count=_ROWS, seen=seen)
    table = torch.zeros(1, 1, dtype=torch.long)
    found = VarlenAttention(kernel, [fed], table).attend(query, keys, values)
    for row in range(_ROWS):
        mine = query[row : row + 1]
        one = VarlenAttention(kernel, [SimpleNamespace(start=0, count=1, seen=seen[row : row + 1])], table)
        if not torch.equal(one.attend(mine, keys, values)[0], found[row]):
            return "a row has other bits among others"
        meant = _expected(mine, keys[:, :, seen[row]], values[:, :, seen[row]])
        error = float((found[row].float() - meant).norm() / meant.norm())
        if not error <= _TOLERANCE[dtype]:
            return f"it is off by {error:.1%}"
    return None


def _expected(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    folded = query.float().view(1, keys.shape[1], -1, query.shape[2])
    return explicit_attention(folded, keys.float(), values.float(), None, PLAIN_SCORES).flatten()


def _loaded(path: Path) -> Attend:
    attend = CDLL(str(path)).attend
    attend.argtypes, attend.restype = [c_void_p] * 5, None
    return attend


def _made(cxx: str, number: str, dim: int) -> Attend:
    """The kernel of the cache folder, or, for seconds, made now: where it is not there, or damaged."""
    about = repr((cxx, number, dim, _FLAGS, cpu_name(), torch.__version__)).encode()
    name = hashlib.sha256(_SOURCE.read_bytes() + about).hexdigest()[:24]
    path = cache_folder() / "cpp" / f"varlen-{name}.so"
    try:
        return _loaded(path)
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as scratch:
            _compile(cxx, [f"-DNUMBER={number}", f"-DDIM={dim}"], Path(scratch)).replace(path)
        return _loaded(path)


def _compile(cxx: str, defined: list[str], folder: Path) -> Path:
    """Threads are those of torch's own OpenMP, where it brings one: two would wait for each other's cores."""
    brought = sorted(Path(torch.__file__).with_name("lib").glob("lib*omp*.so*"))
    linked = [str(brought[0])] if brought else ["-fopenmp"]
    made = folder / "made.so"
    for words in (
        [*_FLAGS, *defined, "-c", str(_SOURCE), "-o", str(folder / "made.o")],
        ["-shared", str(folder / "made.o"), *linked, "-o", str(made)],
    ):
        subprocess.run([cxx, *words], check=True, capture_output=True, text=True, timeout=_PATIENCE_S)
    return made
