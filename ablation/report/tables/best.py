"""The best configuration of one method against the best of another, and rules for the draft length against fixed ones.

Whoever picks the fastest of eight on some prompts and then measures it on them has picked their luck as well. So for
each prompt the best is chosen on all the others (leave one out), and compared on that one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ablation.report.load import in_order
from ablation.report.tables.paired import Logs, judge
from ablation.report.tables.pairs import BEST, MethodPair, paired
from ablation.report.tables.summary import log_speedups, prompt_logs
from sampling.methods.method import FIXED
from sampling.methods.rules import OWN
from sampling.methods.tables import METHODS


@dataclass(frozen=True, slots=True)
class _Choice:
    """A log on each prompt, and how often which configuration was chosen for it."""

    logs: Logs
    chosen: str


def compare_best(frame: pd.DataFrame, manifest: Mapping[str, Any] | None) -> pd.DataFrame:
    """What the plan asked for, with the columns of `MethodPair`; all of a processor are one family of tests."""
    asked = _asked(manifest)
    rows = _lossless(frame)
    pairs: list[MethodPair] = []
    for processor in dict.fromkeys(rows["processor"].astype(str)):
        part = rows[rows["processor"] == processor]
        choices = {(a, b): choice for a, b in asked if (choice := _choose(part, a, b)) is not None}
        for (a, b), judged in zip(choices, judge([choice.logs for choice in choices.values()]), strict=True):
            pairs.append(paired(processor, f"{BEST}{a}", f"{BEST}{b}", judged, choices[a, b].chosen))
    return pd.DataFrame(pairs, columns=list(MethodPair.__dataclass_fields__))


def compare_rules(frame: pd.DataFrame) -> pd.DataFrame:
    """Each rule for the draft length against the best fixed one of its method, with the columns of `MethodPair`.

    The length is chosen on the other prompts; the rules of a method are one family of tests. Nothing where a method has
    no rules, or fewer than two lengths.
    """
    rows = _lossless(frame)
    pairs: list[MethodPair] = []
    if "draft_rule" in rows:
        for (processor, method), part in rows.groupby(["processor", "method"], observed=True, sort=False):
            pairs += _rules(part, str(processor), str(method))
    return pd.DataFrame(pairs, columns=list(MethodPair.__dataclass_fields__))


def _rules(part: pd.DataFrame, processor: str, method: str) -> list[MethodPair]:
    logs = _by_configuration(part)
    own_rule = METHODS[method].controller if method in METHODS else ""
    by_rule = part.drop_duplicates("configuration").set_index("configuration")["draft_rule"].astype(str)
    by_rule = by_rule.replace(OWN, own_rule)
    names = [name for name in in_order(part) if name in logs]
    fixed = [name for name in names if by_rule[name] in FIXED]
    rules = [name for name in names if by_rule[name] not in (*FIXED, "nan", "")]
    if len(fixed) < 2 or not rules or len(logs) < 2:
        return []
    best = _best(logs[fixed])
    family = judge([logs[name].to_numpy() - best.logs for name in rules])
    chosen = f"chosen on the other prompts: {best.chosen}"
    against = f"{BEST}fixed length of {method}"
    return [paired(processor, name, against, judged, chosen) for name, judged in zip(rules, family, strict=True)]


def _asked(manifest: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The pairs of methods in a manifest; what is none is left out."""
    pairs = (manifest or {}).get("compare")
    pairs = pairs if isinstance(pairs, list) else []
    return [(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and list(map(type, pair)) == [str, str]]


def _choose(rows: pd.DataFrame, a: str, b: str) -> _Choice | None:
    """None where either method has no speedup, or fewer than two prompts have those of all configurations."""
    logs = _by_configuration(rows[rows["method"].isin([a, b])])
    methods = rows.drop_duplicates("configuration").set_index("configuration")["method"].astype(str)
    names = {method: [name for name in in_order(rows) if name in logs and methods[name] == method] for method in (a, b)}
    if not all(names.values()) or len(logs) < 2:
        return None
    first, other = _best(logs[names[a]]), _best(logs[names[b]])
    return _Choice(first.logs - other.logs, f"each chosen on the other prompts: {first.chosen}; {other.chosen}")


def _lossless(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that count, with the log of their speedup."""
    rows = frame[~frame["failed"] & (frame["lossless"] == "true")]
    return rows.assign(log_speedup=log_speedups(rows))


def _by_configuration(rows: pd.DataFrame) -> pd.DataFrame:
    """Logs by prompt and configuration, of the prompts that all configurations have."""
    return prompt_logs(rows, ["configuration"]).unstack("configuration").dropna()


def _best(logs: pd.DataFrame) -> _Choice:
    """Of some configurations, on each prompt, the one that is the best on the others."""
    table = logs.to_numpy()
    best = leave_one_out(table)
    return _Choice(table[np.arange(len(table)), best], told([logs.columns[place] for place in best]))


def leave_one_out(logs: NDArray[np.float64]) -> NDArray[np.intp]:
    """For each of n prompts the column of `[n, K]` with the highest median over all the other prompts, `[n]`."""
    return np.array([np.median(np.delete(logs, place, axis=0), axis=0).argmax() for place in range(len(logs))])


def told(chosen: Sequence[str]) -> str:
    """How often which was chosen. Example: "egag egag_gamma_max=4 on 18, egag egag_gamma_max=6 on 2"."""
    return ", ".join(f"{name} on {count}" for name, count in Counter(chosen).most_common())
