"""What stands below a table of speeds: how interval and verdict relate, and why the slow rows are slow."""

from collections.abc import Iterator

import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.tables.cells import few_notes, title_of
from ablation.report.tables.paired import LEVEL, TOO_FEW, UNSHOWN, enough
from ablation.report.tables.rates import ledger_of
from sampling.measure.sentences import gammas_reached
from sampling.methods.tables import AR, METHODS

COVERED = 20
"""Prompts from which on the intervals of medians hold nearly what their name says."""


def verdict_notes(rows: pd.DataFrame) -> Iterator[str]:
    """How to read the verdicts of one processor and task, from its rows of the summary."""
    asked = rows[rows["p_holm"].notna() & (rows["configuration"] != CONTROL)]
    undecided = asked["against_ar"].isin([UNSHOWN, TOO_FEW])
    apart = (asked["speedup_low"] > 1.0) | (asked["speedup_high"] < 1.0)
    if (apart == undecided)[asked["speedup_low"].notna()].any():
        yield (
            "An interval is of one median alone, the verdict of a test on all prompts' ratios, corrected for "
            f"{len(asked)} comparison{'s' if len(asked) > 1 else ''} with AR: an interval may leave out 1 where no "
            "difference is shown, or hold it where one is. The verdict counts."
        )
    for name in asked.loc[undecided & (asked["p_holm"] <= LEVEL), "configuration"]:
        yield f"{name}: the median and the test point to different sides: no difference is shown, whatever p is."
    if (asked["against_ar"] == TOO_FEW).any():
        yield (
            f"Too few prompts: among {len(asked)} comparison{'s' if len(asked) > 1 else ''}, fewer than "
            f"{enough(len(asked))} prompts cannot show a difference, even if all of them agree."
        )
    yield from few_notes(rows.loc[rows["speedup"].notna() & (rows["configuration"] != AR), "compared"])
    if ((asked["compared"] < COVERED) & (asked["speedup_low"] < asked["speedup_high"])).any():
        yield (
            f"Of fewer than {COVERED} prompts a 95 % interval holds the median less often than that: in about 93 of "
            "100 cases, not 95."
        )
    fewer = asked[asked["compared"] < asked["prompts"]]
    for _, row in fewer.iterrows():
        on = f"{row['compared']} of {row['prompts']} prompts"
        yield f"{row['configuration']} is compared on {on}: there is no AR on the others."


def slow_notes(rows: pd.DataFrame) -> Iterator[str]:
    """Why each slow row is slow, as far as it was measured."""
    for _, row in rows[(rows["speedup"] < 1.0) & ~rows["configuration"].isin([AR, CONTROL])].iterrows():
        ledger = ledger_of(row)
        if ledger is not None:
            said = (
                f"; in the ratio of sums {ledger.speedup:.2f}, where slow prompts weigh less"
                if ledger.speedup >= 1.0
                else ""
            )
            yield f"{title_of(row['configuration'])}, median speedup {row['speedup']:.2f}: {ledger}{said}."


def gamma_notes(rows: pd.DataFrame) -> Iterator[str]:
    """Which draft lengths the rules reached that choose one in each round."""
    for _, row in rows[rows["min_gamma"].notna()].iterrows():
        method = METHODS.get(row["method"])
        if method is not None and (method.adapts or row["min_gamma"] < row["max_gamma"]):
            yield f"{row['configuration']}: {gammas_reached(int(row['min_gamma']), int(row['max_gamma']))}."
