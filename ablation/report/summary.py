"""The summary: a row for each processor, configuration and task, where a prompt counts once."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.load import in_order, with_reference
from ablation.results.stamp import LOSSY
from sampling.methods import REFERENCE
from utils.intervals import bootstrap_median

ALL = "all"
OTHER = "other output"
FEW_PROMPTS = 6
_GROUP = ["processor", "configuration", "task"]
_SUMS = ("new_tokens", "decode_s", "own_rounds", "drafted", "tested", "accepted", "gamma_rounds", "known_rounds")


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each processor, configuration and task, and one for all tasks together.

    The unit of replication is the prompt: its turns, seeds and repeats are not independent, so that each
    prompt gives one number, and means, medians and intervals are taken over these. Unknown is NaN.
    """
    rows = _prepared(frame)
    rows = pd.concat([rows.assign(task=ALL), rows.assign(task=rows["task"].astype(str))], ignore_index=True)
    whole = rows[~rows["failed"]]
    groups = rows.groupby(_GROUP, observed=True)
    table = pd.DataFrame({"method": groups["method"].first().astype(str)})
    table["prompts"] = whole.groupby(_GROUP, observed=True)["id"].nunique().reindex(table.index, fill_value=0)
    table["failed"] = groups["failed"].sum()
    table["runs"] = groups.size() - table["failed"]
    table = table.join(_speeds(whole)).join(_rates(whole)).join(_verdicts(whole))
    table["lossless"] = groups["lossless"].agg(_lossless)
    table = table.reset_index()
    table["against_ar"] = [_words(row) for _, row in table.iterrows()]
    return _sorted(table, frame)


def prompt_logs(logs: pd.Series, keys: Iterable[pd.Series]) -> pd.Series:
    """One number a prompt: the mean of its logarithms, so the geometric mean of its ratios."""
    return logs.groupby(list(keys), observed=True).mean().dropna()


def ratio_interval(logs: Iterable[float]) -> tuple[float, float, float]:
    """Median ratio over prompts with its 95 % interval, from one logarithm a prompt; unknown is NaN.

    A single prompt has no interval: nothing tells how far the next one would be off.
    """
    values = list(logs)
    if not values:
        return math.nan, math.nan, math.nan
    middle, low, high = (math.exp(value) for value in bootstrap_median(values))
    return (middle, low, high) if len(values) > 1 else (middle, math.nan, math.nan)


def _prepared(frame: pd.DataFrame) -> pd.DataFrame:
    rows = with_reference(frame)
    rows["log_speedup"] = np.log(rows["speedup"].where(rows["speedup"] > 0))
    # The reference's own ratio is 1 by definition, whatever a file says.
    rows.loc[rows["configuration"] == REFERENCE, "log_speedup"] = 0.0
    # The rounds of another output say nothing about drafts: those of a beam search emit no tokens.
    rows["own_rounds"] = rows["rounds"].where(rows["lossless"].notna())
    rows["known_rounds"] = rows["rounds"].where(rows["mean_gamma"].notna())
    rows["gamma_rounds"] = rows["mean_gamma"] * rows["known_rounds"]
    return rows


def _speeds(whole: pd.DataFrame) -> pd.DataFrame:
    """Tokens a second, the median paired speedup with its interval, and the ratio of sums."""
    by_prompt = whole.groupby([*_GROUP, "id"], observed=True)["tokens_per_s"].mean().groupby(level=_GROUP)
    table = pd.DataFrame({"tokens_per_s_mean": by_prompt.mean(), "tokens_per_s_sd": by_prompt.std(ddof=1)})
    logs = prompt_logs(whole["log_speedup"], [whole[name] for name in (*_GROUP, "id")])
    found = {key: ratio_interval(part) for key, part in logs.groupby(level=_GROUP)}
    names = ["speedup", "speedup_low", "speedup_high"]
    table = table.join(pd.DataFrame.from_dict(found, orient="index", columns=names).reindex(table.index))
    paired = whole[whole["ar_decode_s"].notna() & whole["speedup"].notna() | (whole["configuration"] == REFERENCE)]
    sums = paired.groupby(_GROUP, observed=True)[["new_tokens", "decode_s", "ar_new_tokens", "ar_decode_s"]].sum()
    table["ratio_of_sums"] = (sums["new_tokens"] / sums["decode_s"]) / (sums["ar_new_tokens"] / sums["ar_decode_s"])
    return table


def _rates(whole: pd.DataFrame) -> pd.DataFrame:
    """Rates as ratios of sums, so that a long answer weighs by its tokens; c as a median over runs."""
    groups = whole.groupby(_GROUP, observed=True)
    sums = groups[list(_SUMS)].sum()
    zero_is_unknown = sums.replace(0.0, math.nan)
    return pd.DataFrame(
        {
            "acceptance_rate": sums["accepted"] / zero_is_unknown["drafted"],
            "alpha": sums["accepted"] / zero_is_unknown["tested"],
            "tokens_per_round": sums["new_tokens"] / zero_is_unknown["own_rounds"],
            "c": groups["c"].median(),
            "mean_gamma": sums["gamma_rounds"] / zero_is_unknown["known_rounds"],
            "mean_normalised_entropy": groups["mean_normalised_entropy"].mean(),
        }
    )


def _verdicts(whole: pd.DataFrame) -> pd.DataFrame:
    """How many runs equal AR's ids, how many tie, how many must not differ and do; and how they ended."""
    keys = [whole[name] for name in _GROUP]
    marks = {
        **{name.lower(): whole["divergence_verdict"] == name for name in ("exact", "tie", "BUG")},
        "not_compared": whole["divergence_verdict"].isna(),
        **{f"ended_{name}": whole["finish_reason"] == name for name in ("stop", "length", "context")},
    }
    return pd.DataFrame(marks).groupby(keys, observed=True).sum()


def _lossless(flags: pd.Series) -> str:
    words = set(flags.dropna().astype(str))
    if "false" in words:
        return LOSSY
    return "lossless" if words else OTHER


def _words(row: pd.Series) -> str:
    """How a configuration stands against AR, in words."""
    if row["configuration"] == REFERENCE:
        return "the reference"
    middle, low, high = (float(row[name]) for name in ("speedup", "speedup_low", "speedup_high"))
    if math.isnan(middle):
        return ""
    direction = "slower" if middle < 1.0 else "faster"
    words = direction if low > 1.0 or high < 1.0 else "no difference shown"
    if row["prompts"] < FEW_PROMPTS:
        words = "too few prompts to tell"
    return f"noise: {words}" if row["configuration"] == CONTROL else words


def _sorted(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Processors and tasks as they first appear, all tasks first; configurations in their order."""
    tasks = [ALL, *dict.fromkeys(frame["task"].astype(str))]
    orders = {"processor": list(dict.fromkeys(frame["processor"].astype(str))), "task": tasks}
    orders["configuration"] = in_order(frame)
    for name, order in orders.items():
        table[name] = pd.Categorical(table[name].astype(str), order, ordered=True)
    table = table.sort_values(["processor", "task", "configuration"], ignore_index=True)
    return table.astype(dict.fromkeys(orders, str))
