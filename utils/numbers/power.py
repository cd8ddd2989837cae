"""What a chi-square test would find, and what would escape it: the noncentral chi-square distribution.

A distribution that lies a total variation of t away from the expected one gives n draws a noncentrality of at least
4 n t^2: n sum (d^2 / p) is smallest where the differences d are in proportion to p, on two sets of tokens of half the
mass each. So what is told here holds wherever the difference is.
"""

import math
from functools import cache

from scipy.optimize import brentq
from scipy.stats import chi2, ncx2


@cache
def needed(degrees: int, level: float, power: float) -> float:
    """The noncentrality at which a test at this level finds a difference with this probability."""
    limit, upper = float(chi2.isf(level, degrees)), 10.0
    while ncx2.sf(limit, degrees, upper) < power:
        upper *= 2.0
    return float(brentq(lambda noncentrality: ncx2.sf(limit, degrees, noncentrality) - power, 1e-9, upper))


def found(degrees: int, level: float, noncentrality: float) -> float:
    """The probability that a test finds a difference of this noncentrality."""
    if not degrees:
        return 0.0
    limit = float(chi2.isf(level, degrees))
    return float(ncx2.sf(limit, degrees, noncentrality) if noncentrality else chi2.sf(limit, degrees))


def detectable(degrees: int, draws: float, level: float, power: float) -> float | None:
    """The smallest total variation that is found with this probability; None where none is.

    Example: 15 degrees, 5,000 draws, level 0.001, power 0.95 -> 0.047.
    """
    if not degrees or not draws:
        return None
    distance = math.sqrt(needed(degrees, level, power) / (4.0 * draws))
    return distance if distance < 1.0 else None
