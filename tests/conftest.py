"""One thread for the whole suite: tiny models gain nothing from more, and lose much when cores are shared.

Set before torch is imported, and inherited by the processes that tests start; where a test takes more threads, they
spin briefly. Nothing is compiled but where a test asks for it: each tiny model would cost half a minute.
"""

import utils.threads  # noqa: F401

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CXX"] = "no-compiler-in-tests"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes runs where it is asked for: `-m slow`, or by its name."""
    if "slow" in config.option.markexpr or any("::" in argument for argument in config.args):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with -m slow"))
