"""Machines that played parts of one plan: how fast each was, which says what may be compared."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ablation.report.content import ReportSection
from ablation.report.load import by_load
from ablation.report.origin import machine_text
from ablation.report.tables.cells import Table, number
from ablation.report.tables.summary import speeds
from engines.spec import OURS
from sampling.methods.tables import AR
from utils.text import shown

TITLE = "Hosts"
_MEANING = (
    "AR's tokens/s on each machine, means over its own prompts, which are not those of the others. A prompt in a pass "
    "was played by one machine, with its AR: every ratio is within a machine. Tokens/s elsewhere in this report are "
    "means over all machines, and compare with those of no other run."
)


def hosts_section(frame: pd.DataFrame, manifest: Mapping[str, Any] | None) -> ReportSection | None:
    """A table a processor and load; None where one machine played everything."""
    if frame["host"].nunique() < 2:
        return None
    about = (manifest or {}).get("hosts", {})
    rows = frame[~frame["failed"] & (frame["engine"] == OURS) & (frame["configuration"] == AR)]
    tables = tuple(
        Table(
            f"Hosts under {name}", ("host", "machine", "prompts", "AR tok/s"), tuple(_lines(part, about)), (_MEANING,)
        )
        for name, part in by_load(rows)
    )
    return ReportSection(TITLE, tables, None, (), ())


def _lines(rows: pd.DataFrame, about: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    several = rows["target_weights"].nunique() > 1
    for (host, weights), rows_there in rows.groupby(["host", "target_weights"], observed=True):
        called = f"{shown(str(host))}, {weights} weights" if several else shown(str(host))
        mean = speeds(rows_there).groupby(level="id").mean().mean()
        yield called, shown(machine_text(about.get(str(host)))), str(rows_there["id"].nunique()), number(mean, 1)


def mixed_hosts(frame: pd.DataFrame) -> Iterator[str]:
    """What a reader must know of rows of several machines."""
    counts = frame["host"].value_counts()
    if len(counts) > 1:
        each = ", ".join(f"{shown(str(host))} {count}" for host, count in sorted(counts.items()))
        yield f"Rows of {len(counts)} hosts ({each}): ratios are within a host, tokens/s are means over all of them."
