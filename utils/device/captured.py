"""What capturing graphs took in this process, which belongs to no measured time, and what could not be captured."""

_total_s = 0.0
_failures: list[tuple[str, str]] = []


def captured_s() -> float:
    """All of them so far."""
    return _total_s


def add_captured(seconds: float) -> None:
    """Count some more."""
    global _total_s
    _total_s += seconds


def failures() -> tuple[str, ...]:
    """Why functions run without a graph that were to have one, in order."""
    return tuple(reason for reason, _ in _failures)


def failed_at() -> str:
    """The line of ours that kept the last of them from being captured; empty where it is not known."""
    return _failures[-1][1] if _failures else ""


def add_failure(reason: str, place: str = "") -> None:
    """Note one more, and the line of ours that it came from."""
    _failures.append((reason, place))
