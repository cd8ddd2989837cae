"""The table of joules: against AR on the same prompt, and the least energy beside the highest speed."""

from pathlib import Path
from typing import Any

import pytest

from ablation.plan.grid import Configuration
from ablation.report.tables.cells import Table
from ablation.report.tables.energy import energy_section
from ablation.report.write import write_report
from ablation.results.record import Record
from tests.ablation.frames import against_ar, ran, table
from tests.ablation.synthetic import PLAIN, write_results

SHORT, LONG = (Configuration("speculative", (("gamma", gamma),)) for gamma in (2, 8))


def measured(prompts: int = 6, **more: Any) -> list[Record]:
    """AR takes 2 J a token and 10 s; gamma 2 is 1.5 times as fast at half the joules, gamma 8 twice at 0.75 of them."""
    about: dict[str, Any] = {"idle_watts": 40.0, "energy_of": "2 package, 2 dram", "other_cores": 0.0} | more
    records = []
    for place in range(prompts):
        for one, seconds, joules in ((PLAIN, 10.0, 2.0), (SHORT, 10 / 1.5, 1.0), (LONG, 5.0, 1.5)):
            # On a long prompt everything takes more; a ratio of one prompt does not.
            records.append(ran(one, f"p{place}", seconds, joules_per_token=joules * (1 + place), **about))
    return records


def only(records: list[Record], tmp_path: Path) -> Table:
    section = energy_section(table(tmp_path, *records))
    assert section is not None
    (found,) = section.tables
    return found


def test_ratios_are_of_one_prompt(tmp_path: Path) -> None:
    found = {row[0].split()[-1]: row[1:] for row in only(measured(), tmp_path).rows}
    mean = sum(range(1, 7)) / 6
    assert [float(row[1]) for row in found.values()] == pytest.approx([2 * mean, mean, 1.5 * mean], abs=1e-3)
    assert [row[2].split()[0] for row in found.values()] == ["1.00", "0.50", "0.75"]
    assert [row[3].split()[0] for row in found.values()] == ["1.00", "1.50", "2.00"]
    assert all("[" in row[2] and row[0] == "6" for row in found.values())


def test_the_least_energy_stands_beside_the_highest_speed(tmp_path: Path) -> None:
    (said,) = [note for note in only(measured(), tmp_path).notes if "fastest" in note]
    assert said == (
        "speculative, 6 prompts: fastest is speculative gamma=8 (2.00 of AR's speed, 0.75 of its joules); of the "
        "least energy is speculative gamma=2 (1.50 of AR's speed, 0.50 of its joules). Both were chosen on these "
        "prompts."
    )


def test_it_says_what_was_counted_and_who_else_was_there(tmp_path: Path) -> None:
    notes = " ".join(only(measured(), tmp_path).notes)
    assert "2 package, 2 dram" in notes and "40.0 to 40.0 W" in notes and "Other processes" not in notes
    assert "busy in 18 of 18 runs" in " ".join(only(measured(other_cores=0.9), tmp_path).notes)


def test_joules_of_different_parts_are_not_compared(tmp_path: Path) -> None:
    records = [*measured(1)[:2], ran(LONG, "p0", 5.0, joules_per_token=1.0, idle_watts=60.0, energy_of="1 gpu")]
    found = {row[0].split()[-1]: row[1:] for row in only(records, tmp_path).rows}
    assert found["gamma=8"][2:] == ("–", "–") and found["gamma=2"][2].startswith("0.50")


def test_without_joules_there_is_no_table(tmp_path: Path) -> None:
    assert energy_section(table(tmp_path, *against_ar({SHORT: [2.0, 2.0]}))) is None


def test_a_report_has_the_table(tmp_path: Path, undrawn: None) -> None:
    report = write_report(write_results(tmp_path / "r.csv", measured()))
    assert "of the least energy is speculative gamma=2" in (report.folder / "report.md").read_text(encoding="utf-8")
    assert any(found.title == "Energy under greedy" for found in report.formats)
