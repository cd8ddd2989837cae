"""How a long load reports what it is doing."""

from typing import Protocol


class Progress(Protocol):
    """Told one short sentence a stage, and the fraction done in [0, 1] where it is known."""

    def __call__(self, message: str, fraction: float | None = None) -> None: ...


def silent(message: str, fraction: float | None = None) -> None:
    """The progress that nobody watches."""


def part(whole: Progress, start: float, stop: float) -> Progress:
    """A progress whose 0 to 1 is `start` to `stop` of another."""

    def report(message: str, fraction: float | None = None) -> None:
        whole(message, None if fraction is None else start + (stop - start) * fraction)

    return report
