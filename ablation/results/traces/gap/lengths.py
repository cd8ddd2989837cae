"""The best draft lengths by chances that are known beforehand: what a classifier's word is worth in seconds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from egag.cost_model import CostModel
from egag.rollback_price import TakenBack
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import DraftWalk, placed

_STEPS = 6
Survival = Sequence[NDArray[np.floating]]


def survival(chances: NDArray[np.floating], counts: Sequence[int]) -> Survival:
    """Of each position that each of its drafts and all before it are right. chances: of all drafts, one after another.

    Example: chances .8, .5, .9 of positions with 2 and 1 drafts -> (.8, .4), (.9).
    """
    parts: list[NDArray[np.floating]] = np.split(chances, np.cumsum(counts)[:-1])
    return [np.cumprod(part, dtype=np.float64) for part in parts]


def best_runs(
    walks: Sequence[DraftWalk], survivals: Sequence[Survival], prices: Sequence[CostModel]
) -> list[RunMetrics]:
    """The accounts of walks under the lengths that bring most by these chances.

    A round of n drafts brings 1 + S_1 + ... + S_n tokens and takes T_n seconds. The lengths that bring most tokens a
    second over all rounds are those that bring most tokens less rate times seconds each, at the rate that they reach
    (Dinkelbach 1967). The rate of a text is that of the others.
    """
    rates = [1.0 / price.seconds(0) for price in prices]
    runs: list[RunMetrics] = []
    for _ in range(_STEPS):
        runs = [
            placed(walk, [best_count(one, price, rate) for one in several], price)
            for walk, several, price, rate in zip(walks, survivals, prices, rates, strict=True)
        ]
        tokens, seconds = sum(run.new_tokens for run in runs), sum(run.decode_s for run in runs)
        found = [(tokens - run.new_tokens) / (seconds - run.decode_s) for run in runs]
        if found == rates:
            break
        rates = found
    return runs


def best_count(chain: NDArray[np.floating], price: CostModel, rate: float) -> int:
    """The number of drafts that brings most tokens less rate times seconds, the smallest of equal ones.

    chain: that each draft and all before it are right. rate: tokens a second that time is worth.
    Example: .8, .1 at 20, 21 and 22 s and .05 a second: 1 - 1, 1.8 - 1.05, 1.9 - 1.1 -> 2.
    """
    values = [
        1.0
        + float(chain[:count].sum())
        - rate * (price.seconds(count) + price.rollback_s(TakenBack.of_chain(chain[:count].tolist())))
        for count in range(len(chain) + 1)
    ]
    return max(range(len(values)), key=values.__getitem__)
