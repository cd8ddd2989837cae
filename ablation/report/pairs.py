"""Paired tests: is one configuration faster than another on the same prompts, beyond chance?"""

import math
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ablation.plan.grid import CONTROL
from ablation.report.load import in_order
from ablation.report.summary import ratio_interval
from sampling.methods import REFERENCE

LEVEL = 0.05
Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MethodPair:
    """Speed of `a` over speed of `b`. `p` is raw, `p_holm` corrected over all pairs of the processor.

    `effect` is the matched-pairs rank-biserial correlation: 1 when `a` is faster on every prompt, -1 when slower.
    """

    processor: str
    a: str
    b: str
    prompts: int
    ratio: float
    low: float
    high: float
    p: float
    p_holm: float
    effect: float
    verdict: str


def compare(frame: pd.DataFrame) -> pd.DataFrame:
    """All pairs of configurations under each processor, with the columns of `MethodPair`.

    The control is left out (it is AR again), and so is what does not do the target's work.
    """
    rows = frame[~frame["failed"] & (frame["configuration"] != CONTROL) & frame["lossless"].notna()]
    rows = rows[rows["tokens_per_s"] > 0]
    order = [name for name in in_order(frame) if name in set(rows["configuration"])]
    pairs: list[MethodPair] = []
    for processor in dict.fromkeys(rows["processor"].astype(str)):
        pairs.extend(_family(rows[rows["processor"] == processor], processor, order))
    return pd.DataFrame([asdict(pair) for pair in pairs], columns=list(MethodPair.__dataclass_fields__))


def signed_ranks(samples: list[Logs]) -> list[tuple[float, float]]:
    """Two-sided Wilcoxon signed-rank p and rank-biserial correlation of each sample: a logarithm a prompt.

    Zeros are dropped; p is exact for up to 50 prompts without ties. Nothing but zeros: p = 1, no effect.
    """
    from scipy.stats import rankdata, wilcoxon

    found = [(1.0, 0.0)] * len(samples)
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
            found[index] = float(p), float(effect)
    return found


def holm(values: list[float]) -> list[float]:
    """p values corrected for their number by Holm's method, in the given order.

    Example: [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]: 3 * 0.01, then 2 * 0.03, and 0.04 may not fall below that.
    """
    corrected, highest = [0.0] * len(values), 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - place) * values[index]))
        corrected[index] = highest
    return corrected


def can_tell(prompts: int, pairs: int) -> bool:
    """Whether the test could reach significance at all, if every prompt pointed the same way.

    Example: 5 prompts, 1 pair -> smallest p 2 / 2^5 = 0.0625 -> no. 6 prompts -> 0.03125 -> yes.
    """
    return 2.0 * 0.5**prompts * pairs <= LEVEL


def shown(pairs: pd.DataFrame, methods: dict[str, str], most: int = 30) -> pd.DataFrame:
    """The pairs a reader sees: all of them; beyond `most` a processor, all against AR and the methods' first ones.

    `methods` maps each configuration, in order, to its method.
    """
    firsts = {method: name for name, method in reversed(methods.items())}.values()
    few = pairs.groupby("processor")["a"].transform("size") <= most
    return pairs[few | (pairs["b"] == REFERENCE) | pairs["a"].isin(firsts) & pairs["b"].isin(firsts)]


def _family(rows: pd.DataFrame, processor: str, order: list[str]) -> list[MethodPair]:
    """The pairs of one processor: later configuration against earlier, so that AR is always the second."""
    blocks = rows.pivot(index=["id", "block"], columns="configuration", values="tokens_per_s")
    logs = np.log(blocks.reindex(columns=order).to_numpy())
    prompts = blocks.index.get_level_values("id").factorize()[0]
    found = []
    for (place_b, b), (place_a, a) in combinations(enumerate(order), 2):
        by_prompt = _prompt_means(logs[:, place_a] - logs[:, place_b], prompts)
        if len(by_prompt):
            found.append((a, b, by_prompt))
    tests = signed_ranks([by_prompt for _, _, by_prompt in found])
    corrected = holm([p for p, _ in tests])
    pairs = []
    for (a, b, by_prompt), (p, effect), p_holm in zip(found, tests, corrected, strict=True):
        ratio = ratio_interval(by_prompt.tolist())
        verdict = _verdict((a, b), ratio, p_holm, len(by_prompt), len(found))
        pairs.append(MethodPair(processor, a, b, len(by_prompt), *ratio, p, p_holm, effect, verdict))
    return pairs


def _prompt_means(logs: Logs, prompts: NDArray[np.intp]) -> Logs:
    """One mean a prompt, over the blocks that know it: those in which both configurations ran."""
    known = ~np.isnan(logs)
    counts = np.bincount(prompts[known])
    sums = np.bincount(prompts[known], weights=logs[known])
    means: Logs = sums[counts > 0] / counts[counts > 0]
    return means


def _verdict(names: tuple[str, str], ratio: tuple[float, float, float], p: float, prompts: int, pairs: int) -> str:
    a, b = names
    middle, low, high = ratio
    interval = "" if math.isnan(low) else f"interval {100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %, "
    facts = f"{interval}p = {p:.2g}, n = {prompts}"
    if not can_tell(prompts, pairs):
        return f"{a} against {b}: too few prompts to tell (median {100 * (middle - 1):+.1f} %, {facts})"
    if p > LEVEL or middle == 1.0:
        return f"{a} against {b}: no difference shown (median {100 * (middle - 1):+.1f} %, {facts})"
    direction = "faster" if middle > 1.0 else "slower"
    return f"{a} is {direction} than {b} by {100 * abs(middle - 1):.1f} % ({facts})"
