"""The gap as a folder of files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from ablation.report.gap.bars import gap_plot
from ablation.report.gap.shares import gap_shares, gap_table
from ablation.report.tables.cells import Table
from ablation.results.traces.gap.split import PARTS, Gaps, TextGap
from utils.errors import UserError

HEAD = "# What the oracle leaves"


def write_gap(gaps: Gaps, folder: Path, notes: Sequence[str] = ()) -> Table:
    """Write texts.csv, shares.csv, report.md and the plot, in place of earlier ones; the table that report.md holds.

    notes: what is said of the prices. Raises `UserError` for a folder that cannot be written or holds another report.
    """
    shares = gap_shares(gaps.texts)
    table = gap_table(shares)
    page = folder / "report.md"
    if page.is_file() and not page.read_text(encoding="utf-8", errors="replace").startswith(HEAD):
        raise UserError(f"{str(page)!r} exists and is no report of a gap; it was left alone; choose another --gap")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([_row(one) for one in gaps.texts]).to_csv(folder / "texts.csv", index=False)
        shares.to_csv(folder / "shares.csv", index=False)
        gap_plot(shares).save(folder)
        page.write_text(_page(table, (*notes, *gaps.notes)), encoding="utf-8")
    except OSError as error:
        raise UserError(f"folder {str(folder)!r} cannot be written: {error.strerror or error}") from None
    return table


def _row(one: TextGap) -> dict[str, float | str]:
    return {**asdict(one), **{f"{name}_s": seconds for name, seconds in zip(PARTS, one.parts, strict=True)}}


def _page(table: Table, notes: Sequence[str]) -> str:
    lines = [table.headers, ("---",) * len(table.headers), *table.rows]
    grid = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    said = "\n".join(f"- {note}" for note in (*table.notes, *notes))
    return f"{HEAD}\n\n{grid}\n\n![The parts of the gap](gap.svg)\n\n{said}\n"
