"""`CXX` names no compiler in tests (see `conftest.py`); what is here finds one."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sampling.forward.cpp import library

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


@contextmanager
def found_compiler(folder: Path, forget: Callable[[], None]) -> Iterator[None]:
    """A compiler, and a cache folder of its own. forget: what was checked before, and is then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "g++")
        patch.setattr(library, "cache_folder", lambda: folder)
        forget()
        yield
    forget()
