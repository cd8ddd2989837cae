"""Small rules for text that people gave or read."""

from utils.errors import UserError

_SENTENCE = 200


def checked_text(text: str, what: str) -> str:
    """The text, if it can be written down. Raises `UserError` for half a character (a lone surrogate)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{what}: {text[:40]!r} holds half a character at {error.start}; expected valid Unicode"
        ) from None
    return text


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_line(error: Exception) -> str:
    """What an error of another library says first, for one of our sentences; its class where it says nothing.

    A line that ends in a colon goes on with the next; more than 200 characters are cut.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    said = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    said = f"{type(error).__name__}: {said}" if isinstance(error, KeyError) else said
    return said if len(said) <= _SENTENCE else f"{said[:_SENTENCE]}..."
