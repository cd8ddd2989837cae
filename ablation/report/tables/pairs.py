"""Pairs of configurations: each against AR, as the summary says it, and each against each other."""

from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ablation.plan.grid import CONTROL
from ablation.report.alike import alike
from ablation.report.load import in_order
from ablation.report.tables.cells import percent
from ablation.report.tables.paired import JudgedComparison, Logs, judge
from ablation.report.tables.summary import ALL
from sampling.methods.tables import AR

BEST = "best "
SAME = "the same drafts and tokens in every round: their difference is noise"


@dataclass(frozen=True, slots=True)
class MethodPair:
    """Speed of `a` over speed of `b`, as in `JudgedComparison`.

    `p_holm` is corrected for the family of the pair: all configurations against AR, or all others of the processor.
    A pair that drafted and emitted the same in every round is no question, and has no p.
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


def compare(frame: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """All pairs of configurations under each processor, with the columns of `MethodPair`, those against AR first.

    The control is left out (it is AR again), and so is what does not do the target's work.
    """
    rows = frame[~frame["failed"] & (frame["configuration"] != CONTROL) & frame["lossless"].notna()]
    rows = rows[rows["tokens_per_s"] > 0]
    order = [name for name in in_order(frame) if name in set(rows["configuration"])]
    pairs: list[MethodPair] = []
    for processor in dict.fromkeys(rows["processor"].astype(str)):
        pairs += _against_ar(summary[(summary["processor"] == processor) & (summary["task"] == ALL)])
        pairs += _others(rows[rows["processor"] == processor], processor, order)
    return pd.DataFrame([asdict(pair) for pair in pairs], columns=list(MethodPair.__dataclass_fields__))


def shown(pairs: pd.DataFrame, methods: dict[str, str], most: int = 30) -> pd.DataFrame:
    """The pairs a reader sees: all of them; beyond `most` a processor, all against AR and the methods' first ones.

    `methods` maps each configuration, in order, to its method.
    """
    firsts = {method: name for name, method in reversed(methods.items())}.values()
    few = pairs.groupby("processor")["a"].transform("size") <= most
    best = pairs["a"].str.startswith(BEST) | pairs["b"].str.startswith(BEST)
    return pairs[best | few | (pairs["b"] == AR) | pairs["a"].isin(firsts) & pairs["b"].isin(firsts)]


def _against_ar(summary: pd.DataFrame) -> list[MethodPair]:
    """What the summary says of each configuration, in the form of a pair."""
    rows = summary[summary["speedup"].notna() & ~summary["configuration"].isin([AR, CONTROL])]
    names = {"ratio": "speedup", "low": "speedup_low", "high": "speedup_high", "prompts": "compared"}
    names |= {"p": "p", "p_holm": "p_holm", "effect": "effect", "verdict": "against_ar"}
    lines = []
    for _, row in rows.iterrows():
        judged = JudgedComparison(**{field: row[column] for field, column in names.items()})
        lines.append(paired(str(row["processor"]), str(row["configuration"]), AR, judged))
    return lines


def _others(rows: pd.DataFrame, processor: str, order: list[str]) -> list[MethodPair]:
    """The pairs without AR: later configuration against earlier."""
    order = [name for name in order if name != AR]
    blocks = rows.pivot(index=["id", "block"], columns="configuration", values="tokens_per_s")
    logs = np.log(blocks.reindex(columns=order).to_numpy())
    prompts = blocks.index.get_level_values("id").factorize()[0]
    asked, same = dict[tuple[str, str], Logs](), dict[tuple[str, str], Logs]()
    equal = {(a, b) for group in alike(rows) for b, a in combinations([n for n in order if n in group], 2)}
    for (place_b, b), (place_a, a) in combinations(enumerate(order), 2):
        by_prompt = _prompt_means(logs[:, place_a] - logs[:, place_b], prompts)
        if len(by_prompt):
            (same if (a, b) in equal else asked)[a, b] = by_prompt
    pairs = [paired(processor, a, b, judged) for (a, b), judged in zip(asked, judge(list(asked.values())), strict=True)]
    # Nothing is asked of equal ones: what differs is known to be noise.
    pairs += [_same(processor, a, b, judge([by_prompt])[0]) for (a, b), by_prompt in same.items()]
    return sorted(pairs, key=lambda pair: (order.index(pair.b), order.index(pair.a)))


def _prompt_means(logs: Logs, prompts: NDArray[np.intp]) -> Logs:
    """One mean a prompt, over the blocks that know it: those in which both configurations ran."""
    known = ~np.isnan(logs)
    counts = np.bincount(prompts[known])
    sums = np.bincount(prompts[known], weights=logs[known])
    means: Logs = sums[counts > 0] / counts[counts > 0]
    return means


def paired(processor: str, a: str, b: str, judged: JudgedComparison, more: str = "") -> MethodPair:
    """The pair of what was judged; `more` is told with the verdict's facts."""
    return MethodPair(processor, a, b, **asdict(judged) | {"verdict": _sentence(a, b, judged, more)})


def _same(processor: str, a: str, b: str, judged: JudgedComparison) -> MethodPair:
    unasked = {"p": np.nan, "p_holm": np.nan, "effect": np.nan}
    sentence = f"{a} against {b}: {SAME} (median {percent(judged.ratio)}, {_interval(judged)}n = {judged.prompts})"
    return MethodPair(processor, a, b, **asdict(judged) | unasked | {"verdict": sentence})


def _sentence(a: str, b: str, judged: JudgedComparison, more: str) -> str:
    facts = f"{_interval(judged)}p = {judged.p_holm:.2g}, n = {judged.prompts}{more and f'; {more}'}"
    if judged.verdict in ("faster", "slower"):
        return f"{a} is {judged.verdict} than {b} by {100 * abs(judged.ratio - 1):.1f} % (median, {facts})"
    return f"{a} against {b}: {judged.verdict} (median {percent(judged.ratio)}, {facts})"


def _interval(judged: JudgedComparison) -> str:
    return "" if np.isnan(judged.low) else f"95 % interval {percent(judged.low)[:-2]} to {percent(judged.high)}, "
