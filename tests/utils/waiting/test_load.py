"""What is read from made trees of /proc, and what others did between two of them."""

import os
from pathlib import Path

import pytest

from utils.device.waiting.load import CpuTicks, others, own_cores, read

STAT = """cpu  300 0 30 700 7 3 2 8 50 0
cpu0 100 0 10 500 5 1 1 3 25 0
cpu1 200 0 20 200 2 2 1 5 25 0
intr 5 6 7
"""
SELF = "77 (a name) with) R 1 2 3 4 5 6 7 8 9 10 40 2 900 900 20 0 2 0 5 6"


def made(folder: Path, stat: str = STAT, own: str = SELF) -> Path:
    (folder / "self").mkdir()
    (folder / "stat").write_text(stat)
    (folder / "self" / "stat").write_text(own)
    return folder


def test_all_cores_of_a_process_are_read(tmp_path: Path) -> None:
    assert read({0, 1}, made(tmp_path)) == CpuTicks(1050, 343, 42)


def test_cores_of_others_are_no_matter(tmp_path: Path) -> None:
    assert read({1}, made(tmp_path)) == CpuTicks(430, 228, 42)


@pytest.mark.parametrize(
    ("stat", "own"), [("", SELF), ("cpu0 1 2\n", SELF), ("cpu0 a b c d e\n", SELF), (STAT, ""), (STAT, "77 (x) R 1")]
)
def test_what_is_not_there_is_unknown(stat: str, own: str, tmp_path: Path) -> None:
    assert read({0, 1}, made(tmp_path, stat, own)) is None


def test_no_tree_is_unknown(tmp_path: Path) -> None:
    assert read({0}, tmp_path / "none") is None


@pytest.mark.parametrize(
    ("total", "busy", "own", "cores"),
    [(200, 150, 100, 0.5), (200, 200, 100, 1.0), (200, 99, 100, 0.0), (0, 0, 0, None)],
)
def test_others_are_what_is_busy_beside_this_process(total: int, busy: int, own: int, cores: float | None) -> None:
    assert others(CpuTicks(1000, 400, 10), CpuTicks(1000 + total, 400 + busy, 10 + own), 2) == cores


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux counts")
def test_this_system_is_read() -> None:
    before, after = read(own_cores()), read(own_cores())
    assert before is not None and after is not None and len(own_cores()) <= (os.cpu_count() or 1)
    assert before.total <= after.total and before.own <= after.own and before.busy <= before.total
