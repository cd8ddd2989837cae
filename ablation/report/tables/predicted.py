"""Predicted speedups: what a profile's prices make of the drafts and tokens that a run counted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablation.results.manifest import profiles
from ablation.results.stamp import unstamped
from egag.rollback_price import NOTHING_TAKEN, TakenBack
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR, METHODS
from sampling.pair.profile import NOTHING, LatencyProfile

_KEYS = ["processor", "configuration", "task"]


@dataclass(frozen=True, slots=True)
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


def predict(summary: pd.DataFrame, whole: pd.DataFrame, priced: Prices | None) -> pd.DataFrame:
    """The summary with the column `predicted`: NaN for AR, for what was not timed, and without prices.

    whole: the runs, for the length of their texts. A round's forward is priced for its mean number of rows, its
    drafting for as many drafts as its rule let it draw.
    """
    known = whole.assign(context=whole["prompt_tokens"].fillna(0) + whole["new_tokens"] / 2)
    groups = known.groupby(_KEYS, observed=True)
    counted = [name for name in ("rounds", "tested", "accepted", "reread") if name in known]
    contexts, sums = groups["context"].mean(), groups[counted].sum()
    rows = ((tuple(row[_KEYS]), row) for _, row in summary.iterrows())
    speedups = [
        math.nan if priced is None else _speedup(row, priced, contexts.get(key, 0.0), _taken(sums, key))
        for key, row in rows
    ]
    return summary.assign(predicted=pd.Series(speedups, index=summary.index, dtype=float))


def _taken(sums: pd.DataFrame, key: tuple[Any, ...]) -> TakenBack:
    """What a round took back on average; nothing where files of older versions do not say what was read again."""
    if key not in sums.index or "reread" not in sums or not sums.loc[key, "rounds"]:
        return NOTHING_TAKEN
    row = sums.loc[key]
    return TakenBack(float((row["tested"] - row["accepted"]) / row["rounds"]), float(row["reread"] / row["rounds"]))


def _speedup(row: pd.Series, priced: Prices, context: float, taken: TakenBack) -> float:
    method, profile = METHODS.get(row["method"]), priced.profiles.get(row["target_weights"])
    if method is None or method.name == AR or profile is None or math.isnan(context):
        return math.nan
    defaults = {parameter.name: parameter.default for parameter in method.parameters}
    settings = priced.settings.get(unstamped(row["configuration"]), {})
    price = method.cost_model(profile, {**defaults, **_values(settings)}, round(context))
    plain = profile.cost_model(NOTHING, round(context))
    drafts, tokens = row["rows"] - 1.0, row["compared_tokens_per_round"]
    if price is None or plain is None or math.isnan(drafts) or math.isnan(tokens):
        return math.nan
    asked = drafts if math.isnan(row["mean_gamma"]) else min(drafts, row["mean_gamma"])
    round_s = price.verify_s(drafts) + price.draft_s(asked) + price.rest_s + price.rollback_s(taken)
    return float(tokens * plain.seconds(0) / round_s)


def _values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the manifest tells them; what only a later version has is left out."""
    return {name: value for name, value in settings.items() if name in PARAMETERS}
