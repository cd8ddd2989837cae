"""Refusals: a test names what was refused and what was expected, and never the words between."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from utils.errors import UserError


def lacking(message: str, *data: object) -> list[str]:
    """The data that a message does not quote, each looked for as a whole word: 3 is in none of 13, 3.5, -3, 3.csv."""
    if not data:
        raise TypeError("no data given; expected what the message quotes")
    return [text for text in map(str, data) if not re.search(_whole(text), message)]


def _whole(text: str) -> str:
    return rf"(?<![\w-])(?<!\w\.)(?<!\d,){re.escape(text)}(?![\w-]|\.\w|,\d)" if text else r"''"


@contextmanager
def refused(*data: object, error: type[Exception] = UserError) -> Iterator[pytest.ExceptionInfo[Any]]:
    """What stands within is refused by an error of this class, whose message quotes all the data.

    data: the parameter, the value, the file, the bound or the names that the message is about.
    """
    with pytest.raises(error) as caught:
        yield caught
    missing = lacking(str(caught.value), *data)
    assert not missing, f"{missing} not in: {caught.value}"
