"""Errors that a person caused and can mend; everything else is a bug and keeps its traceback."""

from collections.abc import Iterable
from difflib import get_close_matches

from utils.text import printable, quoted

_MOST_LISTED = 32


class UserError(ValueError):
    """A request that cannot be met; the message says what was given and what was expected.

    Whatever was given, a message can be printed: control characters are escaped, and a long line is cut in its middle.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class NoDistribution(UserError):
    """Logits that no token can be chosen from. whose: `model` or `drafter`."""

    def __init__(self, whose: str) -> None:
        super().__init__(
            f"the logits of the {whose} are NaN or infinite, so that no token can be chosen; expected weights without "
            "damage, in a number format that is wide enough for them, such as float32"
        )


class CannotContinue(UserError):
    """A text that its grammar and the other settings leave no token for. why: what is known of it, in words."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the text cannot be continued under its grammar: {why}; expected a grammar that the vocabulary can "
            "spell, and processors that leave it a token"
        )


class UnknownName(UserError):
    """A name that no table holds, with the nearest one that does exist. `listed`: where a long table can be read.

    near: the allowed name that was probably meant; None where none is close.
    """

    def __init__(self, kind: str, name: str, allowed: Iterable[str], listed: str = "") -> None:
        self.given = name
        self.allowed = tuple(allowed)
        message = f"unknown {kind} {quoted(name)}; expected {one_of(self.allowed, listed)}"
        self.near = nearest(name, self.allowed)
        super().__init__(f"{message}. Did you mean {self.near!r}?" if self.near else message)


def wrong_value(name: str, value: object, expected: str) -> UserError:
    """The error for a value that does not fit: what it is for, what was given, what was expected."""
    return UserError(f"{name}: {quoted(value)} given; expected {expected}")


def checked_text(text: str, what: str) -> str:
    """The text, if it can be written down. Raises `UserError` for half a character (a lone surrogate)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{what}: {quoted(text)} holds half a character at {error.start}; expected valid Unicode"
        ) from None
    return text


def one_of(names: Iterable[str], listed: str = "") -> str:
    """Names to choose from, as an error lists them: `one of A, B`; the name itself where there is only one.

    More than a line holds are counted; `listed` says then where they can be read.
    """
    names = tuple(names)
    if len(names) > _MOST_LISTED:
        return f"one of {len(names)} names{listed and f', which {listed}'}"
    return f"one of {', '.join(names)}" if len(names) > 1 else "".join(names) or "none"


def nearest(text: str, allowed: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The allowed name that `text` begins, else the one closest in spelling; None when nothing is close.

    cutoff: how alike the spelling must be, from 0 to 1, as `difflib` counts.
    """
    allowed = list(allowed)
    if not text or len(text) > 4 * max(map(len, allowed), default=0):
        return None
    if begun := [name for name in allowed if name.startswith(text.lower())]:
        return min(begun, key=len)
    matches = get_close_matches(text.lower(), allowed, n=1, cutoff=cutoff)
    return matches[0] if matches else None
