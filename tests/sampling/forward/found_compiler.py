"""`CXX` names no compiler in tests (see `conftest.py`); what is here finds one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from sampling.forward.cpp import block, dense, kernel, library, vnni
from sampling.forward.kernels.probe import use_kernel

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@contextmanager
def found_compiler(folder: Path) -> Iterator[None]:
    """A compiler, and a cache folder of its own. What was compiled before is forgotten, and is then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "g++")
        patch.setattr(library, "cache_folder", lambda: folder)
        _forget()
        yield
    _forget()


@contextmanager
def own_products() -> Iterator[None]:
    """What is made has products of our own, and nothing has a gradient."""
    use_kernel("own")
    with torch.inference_mode():
        yield
    use_kernel("auto")


def _forget() -> None:
    for cached in (dense._checked, kernel._checked, vnni._checked, block.function_of):
        cached.cache_clear()
