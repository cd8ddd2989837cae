"""Seconds that capturing graphs took in this process: they belong to no measured time."""

_total_s = 0.0


def captured_s() -> float:
    """All of them so far."""
    return _total_s


def add_captured(seconds: float) -> None:
    """Count some more."""
    global _total_s
    _total_s += seconds
