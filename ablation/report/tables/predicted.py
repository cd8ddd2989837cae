"""Predicted speedups: what a profile's prices make of a run's own rounds, and where measured times differ."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from ablation.report.tables.paired import ratio_interval
from ablation.report.tables.rates import by_group
from ablation.results.manifest import profiles
from ablation.results.stamp import unstamped
from egag.cost_model import CostModel
from egag.rollback_price import NOTHING_TAKEN, TakenBack
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR, METHODS
from sampling.pair.profile import NOTHING, LatencyProfile

PREDICTED, OVER, AT_MEANS = "predicted", "measured_over_predicted", "predicted_at_means"
BEFORE: Mapping[str, str] = {
    "factor_rows": "each round priced at its own drafts and context, not the mean round",
    "factor_prompts": "the median over prompts in place of the ratio of sums",
}
"""Factors from the price of the mean round to `predicted`, and what they are."""
PARTS: Mapping[str, str] = {
    "factor_ar": "AR's measured time over its price",
    "factor_forwards": "the target's forwards",
    "factor_drafting": "drafting and learning",
    "factor_rest": "all else in a round",
}
"""Factors of times: above 1 where times make the method faster than prices do. Geometric means over prompts."""
AFTER: Mapping[str, str] = {
    **PARTS,
    "factor_medians": "what is left, because a product of medians is not the median of products",
}
"""Factors from `predicted` to the measured median speedup."""
FACTORS: Mapping[str, str] = {**BEFORE, **AFTER}
INTERVAL = (OVER, f"{OVER}_low", f"{OVER}_high")
COLUMNS = (PREDICTED, *INTERVAL, AT_MEANS, *FACTORS)
OFF = "off"
"""Marks a ratio whose interval leaves out 1."""

_PRICED = ("priced_ar_s", "priced_forwards_s", "priced_drafts_s", "priced_rest_s")
_READ = ("configuration", "method", "target_weights", "prompt_tokens", "new_tokens", "ar_new_tokens", "ar_rounds")
_COUNTED = ("rounds", "drafted", "drafted_by_round", "mean_gamma", "tested", "accepted", "reread")
_TIMES = ("draft_ms", "verify_ms", "other_ms")
_NEEDED = (*_PRICED, *_TIMES, *(f"ar_{name}" for name in _TIMES), "own_rounds", "ar_rounds", "log_speedup")


@dataclass(frozen=True)
class Prices:
    """What a run's manifest knows: the profile of each format, and the settings of each configuration."""

    profiles: Mapping[str, LatencyProfile]
    settings: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, manifest: Mapping[str, Any] | None) -> "Prices | None":
        """Those of a manifest; None where it holds no profile. Raises `UserError` for a damaged one."""
        known = profiles(manifest)
        grid = manifest["fixed"].get("grid") if manifest and known else None
        configurations = grid.get("configurations") if isinstance(grid, dict) else None
        if not isinstance(configurations, dict):
            return None
        return cls(known, {name: values for name, values in configurations.items() if isinstance(values, dict)})

    def values(self, method: str, configuration: str) -> dict[str, Any]:
        """Settings as the manifest tells them, defaults elsewhere; what only a later version has is left out."""
        told = self.settings.get(unstamped(configuration), {})
        defaults = {parameter.name: parameter.default for parameter in METHODS[method].parameters}
        return {**defaults, **{name: value for name, value in told.items() if name in PARAMETERS}}

    def priced(self, method: str, configuration: str, weights: str, context: int) -> "_PricedRounds | None":
        """The prices of a configuration's rounds behind so many tokens; None for AR and for what was not timed."""
        profile, line = self.profiles.get(weights), METHODS.get(method)
        if profile is None or line is None or line.name == AR:
            return None
        values = self.values(method, configuration)
        price = line.cost_model(profile, values, context)
        looks = line.needs(values) is None
        return None if price is None else _PricedRounds(price, line.drafts_trees(values), looks)

    def plain_s(self, weights: str, context: int) -> float:
        """Seconds of a round of AR behind so many tokens; NaN without a profile."""
        profile = self.profiles.get(weights)
        price = None if profile is None else profile.cost_model(NOTHING, context)
        return math.nan if price is None else price.seconds(0)


@dataclass(frozen=True, slots=True)
class _PricedRounds:
    """trees: its drafts are trees. looks: it looks for drafts in every round, found or not, as copies are."""

    price: CostModel
    trees: bool
    looks: bool

    def seconds(self, drafts: Mapping[float, float], gamma: float, taken: TakenBack) -> tuple[float, float, float]:
        """Forwards, drafting and the rest of rounds: how many had so many drafts. taken: back, by a round on average.

        gamma: the mean draft length that was asked for, which is what levels a tree has; NaN where it is unknown.
        """
        price, rounds = self.price, sum(drafts.values())
        levels = gamma if self.trees and not math.isnan(gamma) else math.inf
        without_s = price.first_s if self.looks else 0.0
        forwards_s = sum(often * price.verify_s(count) for count, often in drafts.items())
        drafting_s = sum(
            often * (price.draft_s(min(count, levels)) if count else without_s) for count, often in drafts.items()
        )
        return forwards_s + rounds * price.rollback_s(taken), drafting_s, rounds * price.rest_s


def price_runs(runs: pd.DataFrame, priced: Prices | None) -> pd.DataFrame:
    """The runs with the seconds of all their rounds, and of AR's in the same block, by prices; unknown is NaN."""
    if priced is None:
        return runs.assign(**dict.fromkeys(_PRICED, math.nan))
    rounds_of, plain_s = cache(priced.priced), cache(priced.plain_s)

    def seconds(run: Mapping[Any, Any]) -> tuple[float, ...]:
        weights, prompt = str(run["target_weights"]), _known(run["prompt_tokens"])
        context = _context(prompt, run["new_tokens"])
        found = rounds_of(str(run["method"]), str(run["configuration"]), weights, context)
        if found is None or not run["rounds"] > 0 or not run["ar_rounds"] > 0 or math.isnan(run["drafted"]):
            return (math.nan,) * len(_PRICED)
        of_ar = run["ar_rounds"] * plain_s(weights, _context(prompt, run["ar_new_tokens"]))
        return of_ar, *found.seconds(_drafts(run), run["mean_gamma"], _taken(run))

    read = runs[[name for name in (*_READ, *_COUNTED) if name in runs]].to_dict("records")
    made = pd.DataFrame([seconds(run) for run in read], columns=list(_PRICED), index=runs.index, dtype=float)
    return runs.join(made)


def predictions(whole: pd.DataFrame, group: list[str], priced: Prices | None) -> pd.DataFrame:
    """`COLUMNS` of each group of runs with prices (`price_runs`) and known times.

    Each run has a predicted speedup, as it has a measured one. Both go the same way to their medians: a mean of
    logarithms for each prompt, the median over prompts. The ratio is of each prompt, its median with an interval.
    """
    known = whole.dropna(subset=list(_NEEDED))
    known = _with_logs(known[known["verify_ms"] > 0]) if priced is not None else known.iloc[:0]
    found = {key: _calibrated(part, priced) for key, part in known.groupby(group, observed=True) if priced}
    return by_group(found, group, list(COLUMNS)).astype(float)


def _with_logs(known: pd.DataFrame) -> pd.DataFrame:
    """Each run with logarithms: of its predicted speedup, of measured over predicted, and of the factors of times."""
    draft_s, verify_s, other_s = (known[name] * known["rounds"] / 1e3 for name in _TIMES)
    plain_s = sum(known[f"ar_{name}"] for name in _TIMES) * known["ar_rounds"] / 1e3
    of_ar, forwards_s, drafts_s, rest_s = (known[name] for name in _PRICED)
    # One part after the other is measured in place of priced, so that the factors multiply to the whole.
    stages = [forwards_s + drafts_s + rest_s, verify_s + drafts_s + rest_s, verify_s + draft_s + rest_s]
    stages.append(verify_s + draft_s + other_s)
    ratios = [plain_s / of_ar, *(before / after for before, after in pairwise(stages))]
    predicted = np.log(known["new_tokens"] / stages[0] / (known["ar_new_tokens"] / of_ar))
    logs = {name: np.log(ratio) for name, ratio in zip(PARTS, ratios, strict=True)}
    return known.assign(**{PREDICTED: predicted, OVER: known["log_speedup"] - predicted}, **logs, priced_s=stages[0])


def _calibrated(part: pd.DataFrame, priced: Prices) -> dict[str, float]:
    by_prompt = part.groupby("id", observed=True)[[PREDICTED, OVER, "log_speedup", *PARTS]].mean()
    predicted, measured = (math.exp(by_prompt[name].median()) for name in (PREDICTED, "log_speedup"))
    over, low, high = ratio_interval(by_prompt[OVER])
    sums = part[["new_tokens", "priced_s", "ar_new_tokens", "priced_ar_s"]].sum()
    pooled = sums["new_tokens"] / sums["priced_s"] / (sums["ar_new_tokens"] / sums["priced_ar_s"])
    at_means = _at_means(part, priced)
    factors = {name: math.exp(by_prompt[name].mean()) for name in PARTS}
    before = (at_means, pooled / at_means, predicted / pooled)
    left = measured / predicted / math.prod(factors.values())
    return dict(zip(COLUMNS, (predicted, over, low, high, *before, *factors.values(), left), strict=True))


def _at_means(part: pd.DataFrame, priced: Prices) -> float:
    """The speedup of the mean round behind the mean text: all tokens over all rounds, priced once."""
    name, method, weights = (str(part[name].iloc[0]) for name in ("configuration", "method", "target_weights"))
    context = _context(part["prompt_tokens"].fillna(0).mean(), part["new_tokens"].mean())
    rounds = priced.priced(method, name, weights, context)
    if rounds is None:
        return math.nan
    sums = part[[name for name in ("new_tokens", *_COUNTED) if name in part and name != "drafted_by_round"]].sum()
    gamma = (part["mean_gamma"] * part["rounds"]).sum(min_count=1) / sums["rounds"]
    mean = {float(sums["drafted"] / sums["rounds"]): 1.0}
    round_s = sum(rounds.seconds(mean, gamma, _taken(sums)))
    return float(sums["new_tokens"] / sums["rounds"] * priced.plain_s(weights, context) / round_s)


def _drafts(run: Mapping[str, Any]) -> Mapping[float, float]:
    """How many rounds had so many drafts; all the mean number where files of older versions do not tell them."""
    told = run.get("drafted_by_round")
    counts = Counter(map(int, told.split())) if isinstance(told, str) else Counter[int]()
    if counts.total() == run["rounds"]:
        return {float(drafts): float(often) for drafts, often in counts.items()}
    return {run["drafted"] / run["rounds"]: run["rounds"]}


def _taken(counts: Mapping[str, Any] | pd.Series) -> TakenBack:
    """What a round took back on average; nothing where files of older versions do not say what was read again."""
    reread, judged = counts.get("reread", math.nan), counts["tested"] - counts["accepted"]
    if math.isnan(reread) or math.isnan(judged):
        return NOTHING_TAKEN
    return TakenBack(float(judged / counts["rounds"]), float(reread / counts["rounds"]))


def _context(prompt: float, new: float) -> int:
    """Tokens of the text half way through the answer."""
    return round(_known(prompt) + _known(new) / 2)


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else float(value)
