"""A tiny pair behind a server."""

from collections.abc import Iterator

import pytest

from tests.serve.running import Running, running
from tests.tiny import tiny_pair


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    """A server of a tiny pair, four texts at a time; a module's tests share it."""
    with running(tiny_pair()) as found:
        yield found
