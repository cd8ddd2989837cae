"""What configurations drafted and what their rounds cost, from sums over runs, with intervals over prompts."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

import pandas as pd

from egag.rollback_price import FREE, RollbackPrice
from sampling.measure.ledger import PARTS, Ledger, needed_alpha
from utils.numbers.intervals import Ends, Numbers, share_interval, studentised_ratio

_SUMS = ("new_tokens", "own_rounds", "drafted", "tested", "accepted", "gamma_rounds", "known_rounds")
# A rate, the sums that it is a ratio of, and its interval: a round emits one token or more.
_WITH_INTERVALS: dict[str, tuple[str, str, Callable[[Numbers, Numbers], Ends]]] = {
    "alpha": ("accepted", "tested", share_interval),
    "tokens_per_round": ("new_tokens", "own_rounds", partial(studentised_ratio, least=1.0)),
}
_PHASES = ("draft", "verify", "other")

Rollbacks = Mapping[str, RollbackPrice]


def rates(whole: pd.DataFrame, group: list[str]) -> pd.DataFrame:
    """Rates as ratios of sums, so that a long answer weighs by its tokens; c as a median over runs.

    Intervals are over prompts, the unit of replication: 95 %, NaN where fewer than `FEWEST` prompts know the rate.
    """
    by_prompt = whole.groupby([*group, "id"], observed=True)[list(_SUMS)].sum()
    sums = by_prompt.groupby(level=group).sum()
    known = sums.replace(0.0, math.nan)
    runs = whole.groupby(group, observed=True)
    table = pd.DataFrame({"acceptance_rate": sums["accepted"] / known["drafted"]})
    for name, (part, of, _) in _WITH_INTERVALS.items():
        table[name] = sums[part] / known[of]
    return table.join(_intervals(by_prompt, group)).assign(
        c=runs["c"].median(),
        mean_gamma=sums["gamma_rounds"] / known["known_rounds"],
        min_gamma=runs["min_gamma"].min(),
        max_gamma=runs["max_gamma"].max(),
        mean_normalised_entropy=runs["mean_normalised_entropy"].mean(),
    )


def costs(whole: pd.DataFrame, group: list[str], rollbacks: Rollbacks) -> pd.DataFrame:
    """What a round costs in forwards of AR, the ledger of a token (`token_..._ms`), and what would be break-even.

    All rounds of a configuration together, over all of AR in the same blocks. rollbacks: what taking tokens back costs
    with each format of the target's weights, as far as that is known.
    """
    paired = whole[whole["own_rounds"].notna() & whole["ar_rounds"].notna() & whole["verify_ms"].notna()]
    made = {
        f"{who}{name}_s": paired[f"{who}{name}_ms"] * paired[f"{who}rounds"] for who in ("", "ar_") for name in _PHASES
    }
    columns = [*made, "rounds", "ar_rounds", "drafted", "new_tokens"]
    sums = paired.assign(**made).groupby(group, observed=True)[columns].sum()
    rounds = sums["rounds"].replace(0.0, math.nan)
    plain = sums["ar_rounds"].replace(0.0, math.nan)
    forward = (sums["ar_verify_s"] / plain).replace(0.0, math.nan)
    table = pd.DataFrame({"rows": 1.0 + sums["drafted"] / rounds})
    for name in _PHASES:
        table[name] = sums[f"{name}_s"] / rounds / forward
    table["reference"] = sum(sums[f"ar_{name}_s"] for name in _PHASES) / plain / forward
    table["break_even"] = table[list(_PHASES)].sum(axis=1, min_count=3) / table["reference"]
    table["tokens"] = sums["new_tokens"] / rounds
    wanted = table[["break_even"]].assign(plain_s=table["reference"] * forward / 1e3)
    table = table.join(_token_parts(table, forward)).join(_needed_alphas(paired, wanted, group, rollbacks))
    return table.rename(columns=_COLUMN)


_COLUMN = {"draft": "draft_cost", "verify": "v", "other": "other_cost", "reference": "ar_round"}
_COLUMN |= {"tokens": "compared_tokens_per_round"}


def _token_parts(table: pd.DataFrame, forward: pd.Series) -> pd.DataFrame:
    """The ledger: milliseconds a token, from costs of a round in forwards of AR, which take so many of them."""
    plain_rest = table["reference"] - 1.0
    parts: dict[str, Any] = {
        "verify": 1.0,
        "growth": table["verify"] - 1.0,
        "draft": table["draft"],
        "judging": table["other"] - plain_rest,
        "rest": plain_rest,
    }
    return pd.DataFrame({f"token_{part}_ms": parts[part] * forward / table["tokens"] for part in PARTS})


def _needed_alphas(paired: pd.DataFrame, wanted: pd.DataFrame, group: list[str], rollbacks: Rollbacks) -> pd.DataFrame:
    """The alpha at which each configuration would be as fast as AR; NaN where none would do."""
    alphas: dict[Any, list[float]] = {}
    rounds = wanted.dropna().to_dict("index")
    for key, rows in paired.groupby(group, observed=True):
        if key in rounds:
            hist, tested = (summed(rows[name].dropna()) for name in ("accept_hist", "tested_at"))
            most, needed = int(known(rows["max_gamma"].max()) or 0), rounds[key]
            rollback = rollbacks.get(str(rows["target_weights"].iloc[0]), FREE).scaled(1.0 / needed["plain_s"])
            alpha = needed_alpha(needed["break_even"], hist, tested, most, rollback)
            alphas[key] = [math.nan if alpha is None else alpha]
    return by_group(alphas, group, ["break_even_alpha"])


def ledger_of(row: pd.Series) -> Ledger | None:
    """Where the time of a configuration's tokens went, from its row of the summary; None where it is unknown."""
    parts = {part: float(row[f"token_{part}_ms"]) / 1e3 for part in PARTS}
    tokens, total = float(row["compared_tokens_per_round"]), sum(parts.values())
    if math.isnan(total) or math.isnan(tokens) or not tokens:
        return None
    return Ledger(
        **parts,
        plain=tokens * total / float(row["break_even"]),
        rows=float(row["rows"]),
        tokens=tokens,
        alpha=known(row["alpha"]),
        needed_alpha=known(row["break_even_alpha"]),
    )


def known(value: float) -> float | None:
    """A cell of the summary; None where it is unknown."""
    return None if math.isnan(value) else float(value)


def by_group(by_key: Mapping[Any, Any], group: list[str], columns: list[str]) -> pd.DataFrame:
    """A row for each group of rows, by its key; also where there is none."""
    index = (
        pd.MultiIndex.from_tuples(list(by_key), names=group)
        if by_key
        else pd.MultiIndex.from_arrays([[]] * len(group), names=group)
    )
    return pd.DataFrame(list(by_key.values()), index=index, columns=columns)


def _intervals(by_prompt: pd.DataFrame, group: list[str]) -> pd.DataFrame:
    """`_low` and `_high` of each rate that has an interval."""
    names = [f"{name}_{end}" for name in _WITH_INTERVALS for end in ("low", "high")]
    intervals = {
        key: [
            end[0]
            for part, of, interval in _WITH_INTERVALS.values()
            for end in interval(sums[[part]].to_numpy(float), sums[[of]].to_numpy(float))
        ]
        for key, sums in by_prompt.groupby(level=group)
    }
    return by_group(intervals, group, names)


def summed(cells: Iterable[str]) -> list[int]:
    """Cells of numbers between spaces, added up place by place. Example: "1 2", "3" -> [4, 2]."""
    lists = (list(map(int, cell.split())) for cell in cells)
    return [sum(entries) for entries in zip_longest(*lists, fillvalue=0)]
