"""Waiting for an event: it ends when the event comes, and no test depends on how soon that is."""

import time
from collections.abc import Callable

PATIENCE_S = 240.0  # far beyond what anything here takes, beside other busy processes too


def until(happened: Callable[[], object]) -> None:
    """Wait for the event. Fails where it does not come."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
