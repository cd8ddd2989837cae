"""Errors that a person caused and can mend; everything else is a bug and keeps its traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A request that cannot be met; the message says what was given and what was expected."""


class UnknownName(UserError):
    """A name that no table holds, with the nearest one that does exist."""

    def __init__(self, kind: str, given: str, allowed: Iterable[str]) -> None:
        self.given = given
        self.allowed = tuple(allowed)
        message = f"unknown {kind} {given!r}; expected {one_of(self.allowed)}"
        near = nearest(given, self.allowed)
        super().__init__(f"{message}. Did you mean {near!r}?" if near else message)


def wrong_value(name: str, given: object, expected: str) -> UserError:
    """The error for a value that does not fit: what it is for, what was given, what was expected."""
    return UserError(f"{name}: {given!r} given; expected {expected}")


def one_of(names: Iterable[str]) -> str:
    """Names to choose from, as an error lists them: `one of A, B`; the name itself where there is only one."""
    names = tuple(names)
    return f"one of {', '.join(names)}" if len(names) > 1 else "".join(names) or "none"


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that `given` begins, else the one closest in spelling; None when nothing is close."""
    allowed = list(allowed)
    if given and (begun := [name for name in allowed if name.startswith(given.lower())]):
        return min(begun, key=len)
    matches = get_close_matches(given.lower(), allowed, n=1, cutoff=0.5)
    return matches[0] if matches else None
