"""The table of what the tests took."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.budgets import COLLECTING, README, Budgets, Measurement, folder_of, lines

TESTS = Path(__file__).parent


def test_every_folder_has_a_budget_on_the_page() -> None:
    files = (path.relative_to(TESTS.parent) for path in TESTS.glob("**/test_*.py"))
    folders = {folder_of(file.as_posix()) for file in files}
    assert set(Budgets.read(README.read_text(encoding="utf-8")).seconds) == folders


def test_what_is_over_its_budget_is_marked() -> None:
    told = list(
        lines(
            Budgets({"utils": 100, "repl": 20}, 1200),
            {"repl": 20.4, "utils": 99.0, "new": 1.0},
            {"gw0": 900.0, "gw1": 1300.0},
            {"tests/utils/test_a.py": 0.4, "tests/utils/test_b.py": 350.0},
        )
    )
    marked = [line.split()[0] for line in told if line.endswith("OVER")]
    assert marked == ["repl", "gw1:"]
    assert any("test_b.py" in line for line in told) and not any("test_a.py" in line for line in told)


def test_what_collecting_took_is_no_folders() -> None:
    measured = Measurement()
    for collecting_s in (7.0, 0.0):
        report: Any = SimpleNamespace(
            nodeid="tests/utils/test_a.py::test_b", used_cpu_s=1.0, collecting_s=collecting_s, peak_mib=1.0
        )
        measured.pytest_runtest_logreport(report)
    assert measured.seconds == {"utils": 2.0, COLLECTING: 7.0}


@pytest.mark.parametrize(
    ("file", "folder"),
    [("tests/utils/test_text.py", "utils"), ("tests/docs/more/test_a.py", "docs"), ("tests/test_a.py", "tests")],
)
def test_a_file_belongs_to_its_folder(file: str, folder: str) -> None:
    assert folder_of(file) == folder
