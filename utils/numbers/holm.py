"""Several tests at once."""

from collections.abc import Sequence


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected for their number by Holm's method, in the given order.

    Example: [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]: 3 * 0.01, then 2 * 0.03, and 0.04 may not fall below that.
    """
    corrected, highest = [0.0] * len(values), 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - place) * values[index]))
        corrected[index] = highest
    return corrected
