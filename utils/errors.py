"""Errors that a person caused and can mend; everything else is a bug and keeps its traceback."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A request that cannot be met; the message says what was given and what is allowed."""


class UnknownName(UserError):
    """A name that no table holds, with the nearest one that does exist."""

    def __init__(self, kind: str, given: str, allowed: Iterable[str]) -> None:
        self.given = given
        self.allowed = tuple(allowed)
        message = f"unknown {kind} {given!r}; allowed: {', '.join(self.allowed)}"
        near = nearest(given, self.allowed)
        super().__init__(f"{message}. Did you mean {near!r}?" if near else message)


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that `given` begins, else the one closest in spelling; None when nothing is close."""
    allowed = list(allowed)
    if given and (begun := [name for name in allowed if name.startswith(given.lower())]):
        return min(begun, key=len)
    matches = get_close_matches(given.lower(), allowed, n=1, cutoff=0.5)
    return matches[0] if matches else None
