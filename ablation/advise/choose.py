"""Which candidate, and what to expect of it: the best of many on few prompts looks better than it is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 2000
_ROUNDING = 1e-6
FEW = 6
"""Prompts below which an interval says more of their small number than of a candidate."""


@dataclass(frozen=True, slots=True)
class ExpectedSpeedup:
    """A speedup over plain decoding with its 95 % interval over prompts; one prompt has none: NaN."""

    ratio: float
    low: float
    high: float
    prompts: int

    @property
    def pays(self) -> bool:
        """Whether it is above 1 as far as the prompts tell: the whole interval, of one prompt the ratio."""
        return (self.ratio if math.isnan(self.low) else self.low) > 1.0 + _ROUNDING

    def __str__(self) -> str:
        counted = f"{self.prompts} prompt{'s' if self.prompts != 1 else ''}"
        interval = "" if math.isnan(self.low) else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.ratio:.2f}{interval} on {counted}"


@dataclass(frozen=True, slots=True)
class AdvisedChoice:
    """The best candidate by its mean over prompts, and what it may be expected to bring on others."""

    name: str
    expected: ExpectedSpeedup


def choose(logs: Mapping[str, Sequence[float]]) -> AdvisedChoice | None:
    """The best of candidates by their logarithms of speedups, one a prompt, in the same order; None of none.

    Choosing and judging on the same prompts flatters the winner. So the choice is made again on resampled prompts, and
    by as much as its winners seem better there than on all prompts the expectation is lowered (Efron's optimism); the
    interval is Student's t of the chosen one's mean, lowered alike. The resampling seed is fixed.
    """
    from scipy.stats import t

    known = {name: values for name, values in logs.items() if len(values)}
    if not known:
        return None
    matrix = np.array(list(known.values()), dtype=np.float64)
    best = int(matrix.mean(axis=1).argmax())
    count = matrix.shape[1]
    ratio = float(matrix[best].mean())
    if count == 1:
        return AdvisedChoice(list(known)[best], ExpectedSpeedup(math.exp(ratio), math.nan, math.nan, 1))
    often = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=DRAWS) / count
    means = matrix @ often.T
    winners = means.argmax(axis=0)
    optimism = max(0.0, float((means.max(axis=0) - matrix.mean(axis=1)[winners]).mean()))
    reach = float(t.ppf(0.975, count - 1) * matrix[best].std(ddof=1) / math.sqrt(count))
    likely = ratio - optimism
    expected = ExpectedSpeedup(math.exp(likely), math.exp(likely - reach), math.exp(likely + reach), count)
    return AdvisedChoice(list(known)[best], expected)
