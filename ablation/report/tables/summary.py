"""The summary: a row for each processor, configuration and task, where a prompt counts once."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.load import ASKED, in_order, with_reference
from ablation.report.tables.paired import JudgedComparison, judge, prompts_to_show, ratio_interval
from ablation.report.tables.predicted import Prices, predictions, price_runs
from ablation.report.tables.rates import by_group, costs, rates
from ablation.results.stamp import LOSSY
from sampling.methods.tables import AR

ALL = "all"
OTHER = "other output"
NEEDED = "prompts_for_5_percent"
_GROUP = ["processor", "configuration", "task"]
_REFERENCE = ["new_tokens", "decode_s", "rounds", "draft_ms", "verify_ms", "other_ms"]
_JUDGED = {
    "ratio": "speedup",
    "low": "speedup_low",
    "high": "speedup_high",
    "prompts": "compared",
    "p": "p",
    "p_holm": "p_holm",
    "effect": "effect",
    "verdict": "against_ar",
}


def summarise(frame: pd.DataFrame, priced: Prices | None = None) -> pd.DataFrame:
    """One row for each processor, configuration and task, and one for all tasks together.

    The unit of replication is the prompt: its turns, seeds and repeats are not independent, so that each
    prompt gives one number, and means, medians, intervals and tests are taken over these. The configurations of a
    processor and task are one family of tests against AR. priced: by which costs to predict speedups. Unknown is NaN.
    """
    rows = price_runs(_prepared(frame), priced)
    rows = pd.concat([rows.assign(task=ALL), rows.assign(task=rows["task"].astype(str))], ignore_index=True)
    whole = rows[~rows["failed"]]
    groups = rows.groupby(_GROUP, observed=True)
    table = pd.DataFrame({"method": groups["method"].first().astype(str)})
    table["target_weights"] = groups["target_weights"].first().astype(str)
    table["prompts"] = whole.groupby(_GROUP, observed=True)["id"].nunique().reindex(table.index, fill_value=0)
    table["failed"] = groups["failed"].sum()
    table["runs"] = groups.size() - table["failed"]
    rollbacks = {} if priced is None else {weights: one.rollback for weights, one in priced.profiles.items()}
    parts = [_speeds(whole), _against_ar(whole), rates(whole, _GROUP), costs(whole, _GROUP, rollbacks)]
    for part in (*parts, predictions(whole, _GROUP, priced)):
        table = table.join(part)
    table = table.join(_verdicts(whole).reindex(table.index, fill_value=0))
    table["against_ar"] = table["against_ar"].fillna("")
    table["compared"] = table["compared"].fillna(0).astype(int)
    table["lossless"] = groups["lossless"].agg(_lossless)
    return _sorted(table.reset_index(), frame)


def prompt_logs(whole: pd.DataFrame, keys: list[str]) -> pd.Series:
    """One number a prompt: the mean of its logarithms, so the geometric mean of its speedups."""
    return whole.groupby([*keys, "id"], observed=True)["log_speedup"].mean().dropna()


def speeds(rows: pd.DataFrame, column: str = "tokens_per_s") -> pd.Series:
    """What is above zero of a column of tokens/s, by what was asked: formats and engines have that in common."""
    rows = rows[rows[column] > 0]
    return pd.Series(rows[column].to_numpy(), index=pd.MultiIndex.from_frame(rows[ASKED].astype(str)))


def speed_ratio(theirs: pd.Series, others: pd.Series) -> tuple[float, float, float]:
    """The median over prompts, with its interval, of one prompt's ratio of `speeds` where the same was asked."""
    logs = (theirs / others.reindex(theirs.index)).map(math.log)
    return ratio_interval(logs.groupby(level="id").mean().dropna())


def log_speedups(frame: pd.DataFrame) -> pd.Series:
    """The logarithm of each run's speedup. AR's own is 0 by definition, whatever a file says."""
    logs: pd.Series = np.log(frame["speedup"].where(frame["speedup"] > 0))
    return logs.mask(frame["configuration"] == AR, 0.0)


def _prepared(frame: pd.DataFrame) -> pd.DataFrame:
    rows = with_reference(frame, _REFERENCE)
    rows["log_speedup"] = log_speedups(rows)
    # The rounds of another output say nothing about drafts: those of a beam search emit no tokens.
    rows["own_rounds"] = rows["rounds"].where(rows["lossless"].notna())
    rows["known_rounds"] = rows["rounds"].where(rows["mean_gamma"].notna())
    rows["gamma_rounds"] = rows["mean_gamma"] * rows["known_rounds"]
    return rows


def _speeds(whole: pd.DataFrame) -> pd.DataFrame:
    """Tokens a second, and the ratio of sums."""
    by_prompt = whole.groupby([*_GROUP, "id"], observed=True)["tokens_per_s"].mean().groupby(level=_GROUP)
    table = pd.DataFrame({"tokens_per_s_mean": by_prompt.mean(), "tokens_per_s_sd": by_prompt.std(ddof=1)})
    paired = whole[whole["ar_decode_s"].notna() & whole["speedup"].notna() | (whole["configuration"] == AR)]
    sums = paired.groupby(_GROUP, observed=True)[["new_tokens", "decode_s", "ar_new_tokens", "ar_decode_s"]].sum()
    table["ratio_of_sums"] = (sums["new_tokens"] / sums["decode_s"]) / (sums["ar_new_tokens"] / sums["ar_decode_s"])
    return table


def _against_ar(whole: pd.DataFrame) -> pd.DataFrame:
    """Each configuration's speedup with its interval, test and verdict, by the columns of `_JUDGED`."""
    logs = prompt_logs(whole, _GROUP).reset_index()
    rows = dict[tuple[str, ...], dict[str, object]]()
    for (processor, task), part in logs.groupby(["processor", "task"], observed=True):
        by_name = part.groupby("configuration", observed=True)["log_speedup"]
        samples = {str(name): logs.to_numpy() for name, logs in by_name}
        for name, judged in _judged(samples):
            values = {column: getattr(judged, field) for field, column in _JUDGED.items()}
            # The control is asked alone.
            family = 1 if name == CONTROL else sum(each not in (AR, CONTROL) for each in samples)
            needed = None if name == AR else prompts_to_show(samples[name], family)
            rows[str(processor), name, str(task)] = values | _said(name, judged) | {NEEDED: needed}
    return by_group(rows, _GROUP, [*_JUDGED.values(), NEEDED]).astype({NEEDED: float})


def _judged(samples: dict[str, np.ndarray]) -> Iterator[tuple[str, JudgedComparison]]:
    """AR and its control are no question of the family: each is judged alone."""
    asked = [name for name in samples if name not in (AR, CONTROL)]
    yield from zip(asked, judge([samples[name] for name in asked]), strict=True)
    for name in (AR, CONTROL):
        if name in samples:
            yield name, judge([samples[name]])[0]


def _said(name: str, judged: JudgedComparison) -> dict[str, object]:
    """What AR and its control have in place of a verdict."""
    if name == AR:
        return {"against_ar": "the reference", "p": math.nan, "p_holm": math.nan, "effect": math.nan}
    return {"against_ar": f"noise: {judged.verdict}"} if name == CONTROL else {}


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


def _sorted(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Processors and tasks as they first appear, all tasks first; configurations in their order."""
    tasks = [ALL, *dict.fromkeys(frame["task"].astype(str))]
    orders = {"processor": list(dict.fromkeys(frame["processor"].astype(str))), "task": tasks}
    orders["configuration"] = in_order(frame)
    for name, order in orders.items():
        table[name] = pd.Categorical(table[name].astype(str), order, ordered=True)
    table = table.sort_values(["processor", "task", "configuration"], ignore_index=True)
    return table.astype(dict.fromkeys(orders, str)).copy()  # in one piece, after so many columns one by one
