"""Sources in C++ beside this file, compiled once for this CPU and kept in the user's cache folder.

Whether kernels of our own may compute at all, in Triton on cards and in C++ on CPUs, is said here as well.
"""

import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from ctypes import CDLL
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch

from utils.files import cache_folder
from utils.provenance import cpu_name
from utils.text import first_line

_FOLDER = Path(__file__).parent
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-w")
_PATIENCE_S = 120
_log = logging.getLogger(__name__)
_allowed = True
T = TypeVar("T")


def use_own_kernels(answer: bool) -> None:
    """Whether what is made from now on may have kernels of our own, or torch's operations alone."""
    global _allowed
    _allowed = answer


def own_kernels() -> bool:
    """Whether they are allowed."""
    return _allowed


def compiler() -> str | None:
    """The C++ compiler that torch would call; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def library(name: str, **defined: str) -> CDLL:
    """`name.cpp` with these macros: from the cache folder, or, for seconds, made now if it is not there, or damaged.

    Raises `OSError`, or `subprocess.SubprocessError`.
    """
    cxx, source = str(compiler()), _FOLDER / f"{name}.cpp"
    about = repr((cxx, sorted(defined.items()), _FLAGS, cpu_name(), torch.__version__)).encode()
    sources = [source, *sorted(_FOLDER.glob("*.h"))]
    digest = hashlib.sha256(b"".join([about, *(path.read_bytes() for path in sources)])).hexdigest()[:24]
    path = cache_folder() / "cpp" / f"{name}-{digest}.so"
    try:
        return CDLL(str(path))
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
        macros = [f"-D{macro}={value}" for macro, value in defined.items()]
        with TemporaryDirectory(dir=path.parent) as scratch:
            _compile(cxx, source, macros, Path(scratch)).replace(path)
        return CDLL(str(path))


def usable(what: str, make: Callable[[], T], fault: Callable[[T], str | None]) -> T | None:
    """What is made of a library; None where that fails or it has a fault, and a line says why."""
    try:
        made = make()
        reason = fault(made)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        reason = first_line(getattr(error, "stderr", None) or str(error)) or type(error).__name__
    if reason is None:
        return made
    _log.warning("%s in C++ is not used: %s", what, reason)
    return None


def _compile(cxx: str, source: Path, macros: list[str], folder: Path) -> Path:
    """Threads are those of torch's own OpenMP, where it brings one: two would wait for each other's cores."""
    brought = sorted(Path(torch.__file__).with_name("lib").glob("lib*omp*.so*"))
    linked = [str(brought[0])] if brought else ["-fopenmp"]
    made = folder / "made.so"
    for words in (
        [*_FLAGS, *macros, "-c", str(source), "-o", str(folder / "made.o")],
        ["-shared", str(folder / "made.o"), *linked, "-o", str(made)],
    ):
        subprocess.run([cxx, *words], check=True, capture_output=True, text=True, timeout=_PATIENCE_S)
    return made
