"""How everything that is shown calls what does not keep to the target's distribution: one word, put in one place."""

from collections.abc import Iterable

LOSSY = "LOSSY"
_STAMP = f" {LOSSY}"


def stamped(name: str, lossless: bool | None) -> str:
    """The name, stamped once where the output is lossy; `lossless` None: another output, which is not judged."""
    return f"{unstamped(name)}{_STAMP}" if lossless is False else name


def unstamped(name: str) -> str:
    """The name alone."""
    return name.removesuffix(_STAMP)


def warning(names: Iterable[str]) -> str:
    """What the stamp means, said of those that carry it."""
    return f"{LOSSY}: the output of {', '.join(map(unstamped, names))} does not follow the target's distribution"
