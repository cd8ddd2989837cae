"""Configurations that did the same: other names for one, whose difference in speed is noise."""

import pandas as pd

# What a generation drafted and emitted, round by round.
_DID = ["drafted", "accept_hist", "tokens_by_round"]


def alike(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Groups of configurations that drafted and emitted the same in every round of every block, in order of appearance.

    rows: of one processor. Who drafted nothing, failed somewhere or has no such columns is in no group.
    """
    rows = rows[~rows["failed"] & rows["tokens_by_round"].notna()]
    did = rows.groupby(_DID, dropna=False).ngroup()
    blocks = rows.assign(did=did).pivot(index="block", columns="configuration", values="did")
    drafted = rows.groupby("configuration", observed=True)["drafted"].sum()
    groups: dict[tuple[float, ...], list[str]] = {}
    for name in dict.fromkeys(rows["configuration"].astype(str)):
        if drafted[name] > 0 and blocks[name].notna().all():
            groups.setdefault(tuple(blocks[name]), []).append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]
