"""What is printed of others' words."""

import pytest

from utils.errors import UnknownName, UserError, wrong_value
from utils.text import printable, quoted, shown


@pytest.mark.parametrize("text", ["plain", "größe, 東京, 🙂", "[red]", "a|b\\c"])
def test_what_steers_nothing_stays(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x07\x00\x7f\x9b", "\\x07\\x00\\x7f\\x9b"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\u2028\ud800", "\\u2028\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, seen: str) -> None:
    assert shown(text) == seen
    assert shown("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


def test_what_was_given_is_cut_with_its_length() -> None:
    assert quoted("x") == "'x'" and quoted(3) == "3" and quoted("x" * 60) == repr("x" * 60)
    assert quoted("x" * 5000) == f"{'x' * 60!r}... (5,000 characters)"
    assert quoted([1] * 1000).endswith("... (3,000 characters)") and len(quoted([1] * 1000)) < 90
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert quoted(deep) == "a list" and quoted(16**5000) == "a int"
    while deep:  # else its deletion would be as deep
        deep = deep[0]  # type: ignore[assignment]


def test_a_message_can_be_printed_whatever_was_given() -> None:
    error = wrong_value("gamma", "9\x1b" * 1_000_000, "an integer")
    assert len(str(error)) < 400 and str(error).endswith("expected an integer") and "\x1b" not in str(error)
    assert str(UserError("line 1\n  line 2")) == "line 1\n  line 2"
    long = printable(f"begin {'x' * 5000} end")
    assert len(long) <= 400 and long.startswith("begin") and long.endswith("end") and "(5,010 characters)" in long


def test_a_long_table_is_not_listed_in_a_message() -> None:
    names = [f"name{place}" for place in range(60)]
    said = str(UnknownName("setting", "nam3", names, "/help lists"))
    assert "expected one of 60 names, which /help lists. Did you mean 'name" in said
    assert "Did you mean" not in str(UnknownName("setting", "x" * 1_000_000, names))
