"""Notes below a table of speeds: the relation of interval and verdict, and the causes of slow rows."""

from collections.abc import Iterator

import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.tables.cells import few_notes, title_of
from ablation.report.tables.paired import GAIN, LEVEL, POWER, TOO_FEW, UNSHOWN, enough
from ablation.report.tables.rates import ledger_of
from ablation.report.tables.summary import NEEDED
from sampling.measure.sentences import gammas_reached
from sampling.methods.tables import AR, METHODS
from utils.numbers.intervals import order_pair


def verdict_notes(rows: pd.DataFrame) -> Iterator[str]:
    """Notes on the verdicts of one processor and task, from its rows of the summary."""
    asked = rows[rows["p_holm"].notna() & (rows["configuration"] != CONTROL)]
    undecided = asked["against_ar"].isin([UNSHOWN, TOO_FEW])
    apart = (asked["speedup_low"] > 1.0) | (asked["speedup_high"] < 1.0)
    if (apart == undecided)[asked["speedup_low"].notna()].any():
        yield (
            "An interval covers one median. A verdict comes from a test on the ratios of all prompts, corrected for "
            f"{len(asked)} comparison{'s' if len(asked) > 1 else ''} with AR. An interval may exclude 1 although "
            "no difference is shown, or contain 1 although one is shown. The verdict counts."
        )
    for name in asked.loc[undecided & (asked["p_holm"] <= LEVEL), "configuration"]:
        yield f"{name}: the median and the test have opposite signs, so no difference is shown, whatever p is."
    if (asked["against_ar"] == TOO_FEW).any():
        yield (
            f"Too few prompts: with {len(asked)} comparison{'s' if len(asked) > 1 else ''}, fewer than "
            f"{enough(len(asked))} prompts cannot show a difference, even if all of them agree."
        )
    yield from few_notes(rows.loc[rows["speedup"].notna() & (rows["configuration"] != AR), "compared"])
    yield from _coverage(asked)
    yield from _needed(asked)
    fewer = asked[asked["compared"] < asked["prompts"]]
    for _, row in fewer.iterrows():
        on = f"{row['compared']} of {row['prompts']} prompts"
        yield f"{row['configuration']} is compared on {on}: AR did not run on the others."


def _coverage(asked: pd.DataFrame) -> Iterator[str]:
    """Between which ratios intervals lie, and how often such a pair holds the median."""
    counts = sorted({int(count) for count in asked.loc[asked["speedup_low"].notna(), "compared"]})
    pairs = [(count, order_pair(count)) for count in counts]
    if pairs:
        said = [
            f"{n} prompts: ratios {one.rank} and {n + 1 - one.rank}, {100 * one.coverage:.1f} %" for n, one in pairs
        ]
        yield f"Intervals lie between two of the sorted ratios, with this exact coverage: {'; '.join(said)}."


def _needed(asked: pd.DataFrame) -> Iterator[str]:
    """With how many prompts a gain of 5 % would show, for the least and the widest spread."""
    known = asked[asked[NEEDED].notna()].sort_values(NEEDED, kind="stable")
    if known.empty:
        return
    ends = [known.iloc[place] for place in ((0,) if len(known) == 1 else (0, -1))]
    said = " and ".join(f"{row[NEEDED]:,.0f} for {title_of(row['configuration'])}" for row in ends)
    between = "" if len(ends) == 1 else " (the least and the widest spread)"
    yield (
        f"A gain of {100 * GAIN:.0f} % would be shown in {100 * POWER:.0f} of 100 repetitions with so many prompts: "
        f"{said}{between}; "
        f"compared were {int(known['compared'].max())}."
    )


def slow_notes(rows: pd.DataFrame) -> Iterator[str]:
    """The cause of each slow row, if it was measured."""
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
    """The range of draft lengths of each adaptive rule."""
    for _, row in rows[rows["min_gamma"].notna()].iterrows():
        method = METHODS.get(row["method"])
        if method is not None and (method.adapts or row["min_gamma"] < row["max_gamma"]):
            yield f"{row['configuration']}: {gammas_reached(int(row['min_gamma']), int(row['max_gamma']))}."
