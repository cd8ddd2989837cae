"""What capturing graphs took in this process, which belongs to no measured time, and what could not be captured."""

_total_s = 0.0
_failures: list[str] = []


def captured_s() -> float:
    """All of them so far."""
    return _total_s


def add_captured(seconds: float) -> None:
    """Count some more."""
    global _total_s
    _total_s += seconds


def failures() -> tuple[str, ...]:
    """Why functions run without a graph that were to have one, in order."""
    return tuple(_failures)


def add_failure(reason: str) -> None:
    """Note one more."""
    _failures.append(reason)
