"""One thread for the whole suite: tiny models gain nothing from more, and lose much when cores are shared.

Set before torch is imported, and inherited by the processes that tests start; where a test takes more threads, they
spin briefly. Nothing is compiled but where a test asks for it: each tiny model would cost half a minute.
"""

import utils.device.threads  # noqa: F401

import ctypes
import gc
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.budgets import Measurement

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CXX"] = "no-compiler-in-tests"
# A script's background ignores Ctrl-C, and what a process starts inherits it: tests of Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """A table of what the tests took, at the end: `tests/README.md`."""
    config.pluginmanager.register(Measurement())


def pytest_collection_finish() -> None:
    """What was imported and collected stays: nothing looks through it for garbage again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At its end the process takes down all of it."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What fixtures draw is the same in every run; the memory's bandwidth is measured with little memory, and no energy
    is counted, whatever the machine has.
    """
    _seed()
    if traffic := sys.modules.get("sampling.forward.traffic"):
        traffic._BYTES = 1 << 24  # type: ignore[attr-defined]
    if counters := sys.modules.get("utils.device.energy_counters"):
        counters.RAPL = Path("nowhere")  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """What a test draws is the same alone, where it also makes what the tests of its file share."""
    _seed()


def _seed() -> None:
    """One state of the random numbers that no generator is given for, in what has been imported: 0.1 ms."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What the tests of a file made is given back to the system behind the last of them."""
    answer = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
            library.malloc_trim(0)
    return answer


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes runs where it is asked for: `-m slow`, or by its name."""
    if any("::" in argument for argument in config.args):
        return
    for marker in {"gpu_rehearsal", "slow", "triton"} - set(config.option.markexpr.split()):
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"takes minutes; run with -m {marker}"))


@pytest.fixture
def packed_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products that are batch-invariant: which kernel a CPU takes by itself depends on its speed in each."""
    from sampling.forward.kernels.probe import use_kernel
    from sampling.loading import pairs

    monkeypatch.setattr(pairs, "_use_kernel", lambda name: use_kernel("packed"))
    yield
    use_kernel("auto")
