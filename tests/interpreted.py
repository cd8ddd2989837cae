"""A process in which Triton's kernels are interpreted on a CPU. Triton decides that when it is imported, for good."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

_HANGS_S = 240.0

Worker = Callable[..., Any]


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"


@contextmanager
def interpreter() -> Iterator[Worker]:
    """Calls functions of modules there: `call(function, *arguments)` returns, or raises, what they do."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _interpret) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result(_HANGS_S)
