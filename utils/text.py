"""Small rules for text that people gave or read."""

import re
from collections.abc import Iterable

_SHOWN, _LINE = 60, 400
# What steers a terminal, breaks a line or turns its direction; and half characters, which no terminal can print.
_UNSEEN = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_STEERING, _STEERING_IN_LINES = re.compile(f"[{_UNSEEN}]"), re.compile(f"(?![\n\t])[{_UNSEEN}]")

_SENTENCE = 200


def shown(text: object, lines: bool = False) -> str:
    """Text that others wrote, safe to print: control characters as their escapes. lines: line ends and tabs stay.

    Example: "a\\x1b[2Jb" with a real escape character -> the eight visible characters `a\\x1b[2Jb`.
    """
    return (_STEERING_IN_LINES if lines else _STEERING).sub(lambda match: repr(match[0])[1:-1], str(text))


def quoted(value: object) -> str:
    """What was given, on one line of a message: in quotes if it is a text, and cut where it is long, with its length.

    Example: "x" * 5000 -> 60 times x in quotes, then `... (5,000 characters)`.
    """
    if isinstance(value, str):
        head, length = repr(value[:_SHOWN]), len(value)
    else:
        try:
            text = " ".join(repr(value).split())
        except (RecursionError, ValueError):  # too deep, or a number of too many digits
            return f"a {type(value).__name__}"
        head, length = text[:_SHOWN], len(text)
    return head if length <= _SHOWN else f"{head}... ({length:,} characters)"


def printable(message: str) -> str:
    """A message of several lines, safe to print, no line longer than 400 characters: what is cut is in the middle."""
    return "\n".join(map(_fitting, shown(message, lines=True).split("\n")))


def _fitting(line: str) -> str:
    if len(line) <= _LINE:
        return line
    head, tail, mark = line[: _LINE // 2], line[-_LINE // 4 :], f" ... ({len(line):,} characters) ... "
    return f"{head}{mark}{tail}"


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def few(names: Iterable[object], most: int = 5) -> str:
    """The first names, and how many more there are.

    Example: a, b, c with at most 2 -> "a, b and 1 more".
    """
    all_names = [shown(name) for name in names]
    more = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return f"{', '.join(all_names[:most])}{more}"


def first_line(error: Exception | str) -> str:
    """What an error of another library says first, for one of our sentences; its class where it says nothing.

    A line that ends in a colon goes on with the next; more than 200 characters are cut.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    said = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    said = f"{type(error).__name__}: {said}" if isinstance(error, KeyError) else said
    return said if len(said) <= _SENTENCE else f"{said[:_SENTENCE]}..."
