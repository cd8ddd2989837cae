"""Paired tests on one log ratio a prompt: is one side faster than the other beyond chance, given all that was asked?"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from utils.numbers.holm import holm
from utils.numbers.intervals import FEWEST, median_interval

LEVEL = 0.05
GAIN, POWER = 0.05, 0.8
"""What `prompts_to_show` asks: how many prompts show a gain of 5 % in 80 of 100 repetitions."""
Logs = NDArray[np.float64]
Verdict = Literal["faster", "slower", "no difference shown", "too few prompts to show any"]
UNSHOWN: Verdict = "no difference shown"
TOO_FEW: Verdict = "too few prompts to show any"


@dataclass(frozen=True, slots=True)
class JudgedComparison:
    """One comparison of a family: median ratio with its 95 % interval, and what the corrected test says of it.

    The interval is of this ratio alone, the verdict is corrected for the whole family: so the one may leave out 1
    where the other shows no difference. `effect` is the matched-pairs rank-biserial correlation: 1 when the first
    side is faster on every prompt, -1 when it is slower.
    """

    prompts: int
    ratio: float
    low: float
    high: float
    p: float
    p_holm: float
    effect: float
    verdict: Verdict


def judge(family: Sequence[Logs]) -> list[JudgedComparison]:
    """The verdicts of comparisons that are asked together, each from its log ratios, one a prompt and at least one.

    Two-sided Wilcoxon signed-rank tests, their p corrected by Holm's method: the chance that any difference of the
    family is called one, where there is none, is at most `LEVEL`.
    """
    tests = signed_ranks(family)
    corrected = holm([p for p, _ in tests])
    judged = []
    for logs, (p, effect), p_holm in zip(family, tests, corrected, strict=True):
        ratio, low, high = ratio_interval(logs)
        verdict = _verdict(ratio, effect, p_holm, can_tell(len(logs), len(family)))
        judged.append(JudgedComparison(len(logs), ratio, low, high, p, p_holm, effect, verdict))
    return judged


def ratio_interval(logs: Iterable[float]) -> tuple[float, float, float]:
    """Median ratio over prompts with its 95 % interval, from one logarithm a prompt; unknown is NaN.

    Fewer than `FEWEST` prompts have no interval: even the whole range of so few misses the median too often.
    """
    values = list(logs)
    if not values:
        return math.nan, math.nan, math.nan
    middle, low, high = (math.exp(value) for value in median_interval(values))
    return (middle, low, high) if len(values) >= FEWEST else (middle, math.nan, math.nan)


def signed_ranks(samples: Sequence[Logs]) -> list[tuple[float, float]]:
    """Two-sided Wilcoxon signed-rank p and rank-biserial correlation of each sample: a logarithm a prompt.

    Zeros are dropped; p is exact for up to 50 prompts without ties. Nothing but zeros: p = 1, no effect.
    """
    from scipy.stats import rankdata, wilcoxon

    rank_sums = [(1.0, 0.0)] * len(samples)
    moved = [logs[logs != 0.0] for logs in samples]
    alike: dict[tuple[int, int], list[int]] = {}
    for index, logs in enumerate(moved):
        if len(logs):
            # Samples of one size are one call; one with ties goes alone, for scipy treats a whole call alike.
            tied = len(np.unique(np.abs(logs))) < len(logs)
            alike.setdefault((len(logs), index if tied else -1), []).append(index)
    for indices in alike.values():
        batch = np.stack([moved[index] for index in indices])
        ranks = rankdata(np.abs(batch), axis=1)
        effects = (np.sign(batch) * ranks).sum(axis=1) / ranks.sum(axis=1)
        for index, p, effect in zip(indices, np.atleast_1d(wilcoxon(batch, axis=1).pvalue), effects, strict=True):
            rank_sums[index] = float(p), float(effect)
    return rank_sums


def can_tell(prompts: int, comparisons: int) -> bool:
    """Whether the test could reach significance at all, if every prompt pointed the same way.

    Example: 5 prompts, 1 comparison -> smallest p 2 / 2^5 = 0.0625 -> no. 6 prompts -> 0.03125 -> yes.
    """
    return 2.0 * 0.5**prompts * comparisons <= LEVEL


def enough(comparisons: int) -> int:
    """The fewest prompts with which `can_tell`. Example: 1 comparison -> 6, 11 -> 9."""
    return 1 + math.ceil(math.log2(comparisons / LEVEL))


def prompts_to_show(logs: Logs, comparisons: int, gain: float = GAIN) -> int | None:
    """Prompts on which the test would find a gain in `POWER` of the cases, if logarithms spread as these do.

    The usual normal approximation: n = (pi / 3) ((z of the level + z of the power) spread / ln(1 + gain))^2, at Holm's
    strictest level, LEVEL / comparisons. pi / 3 is what ranks cost against a t test where logarithms are normal. None
    of two prompts or fewer, and where all are alike.
    """
    if len(logs) < 3 or not (spread := float(np.std(logs, ddof=1))):
        return None
    from scipy.stats import norm

    reach = float(norm.isf(LEVEL / comparisons / 2.0) + norm.ppf(POWER))
    needed = math.pi / 3.0 * (reach * spread / math.log1p(gain)) ** 2
    return max(math.ceil(needed), enough(comparisons))


def _verdict(ratio: float, effect: float, p_holm: float, can: bool) -> Verdict:
    """What both say: the test weighs by size, so that many small gains and few large losses make it disagree."""
    if p_holm <= LEVEL and ratio > 1.0 and effect > 0.0:
        return "faster"
    if p_holm <= LEVEL and ratio < 1.0 and effect < 0.0:
        return "slower"
    return UNSHOWN if can else TOO_FEW
