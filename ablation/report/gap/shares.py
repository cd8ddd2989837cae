"""The parts of the gap as shares of it, with intervals over prompts."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablation.report.tables.cells import Table, interval, number
from ablation.results.traces.gap.split import PARTS, TextGap
from utils.numbers.intervals import FEWEST, Numbers, studentised_ratio

HEADERS = (
    "drafter and rule",
    "prompts",
    "gap, % of the best fixed length's time",
    "later rounds",
    "irreducible",
    "other signals",
    "its signal, not reached",
    "reached and kept",
    "paid back to the host",
    "AUC of all signals",
    "AUC of its own",
)
NOTES = (
    "The gap is the time between the best fixed length and the oracle, which knows what will be accepted. The six "
    "parts are % of it and sum to 100 [95 % interval over prompts].",
    "later rounds: what the oracle gains by ending a round early for the sake of a later one. irreducible: what all "
    "signals of the draft side leave of what is accepted in the round itself. other signals: what those that the "
    "rule does not read would spare. its signal, not reached: what those that it reads would spare and the rule does "
    "not. reached and kept: what it spares less its host time. A part below 0 is time that was lost.",
    "The signals are read by gradient-boosted trees that never saw the prompt; a better reader would find less "
    "irreducible. AUC: how often they rate a draft that is right above one that is wrong.",
    "Host time was measured in this process, on this machine: the rule's own code, and the figures of distributions "
    "that it reads computed from logits on the CPU. All other seconds are the price's.",
)


def gap_shares(texts: Sequence[TextGap]) -> pd.DataFrame:
    """A row for each drafter and rule: the gap in % of the best fixed length's seconds, and its parts in % of it.

    The columns of a share end in `_low` and `_high` with its interval over prompts, NaN below five of them.
    """
    rows = list[dict[str, float | str]]()
    for drafter, rule in dict.fromkeys((one.drafter, one.rule) for one in texts):
        several = [one for one in texts if (one.drafter, one.rule) == (drafter, rule)]
        first, sums = several[0], _by_prompt(several)
        row: dict[str, float | str] = {"drafter": drafter, "rule": rule, "fixed": first.fixed, "prompts": len(sums)}
        row |= _shares(sums[:, :1], sums[:, -1:], ("gap",), 0.0)
        row |= _shares(sums[:, 1:-1], np.repeat(sums[:, :1], len(PARTS), axis=1), PARTS, -math.inf)
        rows.append(row | {"all_auc": first.all_auc, "signal_auc": first.signal_auc})
    return pd.DataFrame(rows)


def _by_prompt(texts: Sequence[TextGap]) -> Numbers:
    """Seconds of each prompt: its gap, the parts, those of the best fixed length."""
    rows: dict[str, list[float]] = {}
    for one in texts:
        seconds = (one.gap_s, *one.parts, one.fixed_s)
        rows[one.id] = [sum(both) for both in zip(rows.get(one.id, [0.0] * len(seconds)), seconds, strict=True)]
    return np.array(list(rows.values()))


def _shares(parts: Numbers, wholes: Numbers, names: Sequence[str], least: float) -> dict[str, float | str]:
    sums, whole = parts.sum(axis=0), wholes.sum(axis=0)
    shares = np.divide(sums, whole, out=np.full_like(sums, np.nan), where=whole > 0)
    low, high = studentised_ratio(parts, wholes, least)
    found: dict[str, float | str] = {}
    for place, name in enumerate(names):
        found |= {name: 100 * shares[place], f"{name}_low": 100 * low[place], f"{name}_high": 100 * high[place]}
    return found


def gap_table(shares: pd.DataFrame) -> Table:
    """The shares as text."""
    rows = tuple(_line(row) for _, row in shares.iterrows())
    few = (f"No interval of fewer than {FEWEST} prompts.",) if (shares["prompts"] < FEWEST).any() else ()
    return Table("What the oracle leaves", HEADERS, rows, (*NOTES, *few))


def _line(row: pd.Series) -> tuple[str, ...]:
    cells = [interval(row[name], row[f"{name}_low"], row[f"{name}_high"], 1) for name in ("gap", *PARTS)]
    called = f"{row['drafter']}, {row['rule']} (best fixed {row['fixed']})"
    return (called, str(row["prompts"]), *cells, number(row["all_auc"]), number(row["signal_auc"]))
