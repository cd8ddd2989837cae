"""The programs of docs/examples, run as a user runs them: one in a process of its own, the others in this one.

The default pair is a small one with random weights (conftest.py).
"""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import DRAFTERS, METHODS
from tests.docs.pages import ROOT
from tests.docs.records import RESULTS
from tests.docs.stand_in import stand_in
from tests.forked import python

EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
MOST_LINES = 50


@pytest.fixture(autouse=True)
def own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example registers is gone behind it."""
    for table in (DRAFTERS, CONTROLLERS, METHODS, PARAMETERS):
        monkeypatch.setattr(table, "_entries", dict(table._entries))


def _told(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a program prints."""
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def _rows(told: str) -> dict[str, str]:
    """The output column of each method's row, by its name."""
    rows = re.findall(r"^ *(\S.*?)  +[\d.]+ +.* (\S+)$", told, flags=re.MULTILINE)
    return dict(rows)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_program_is_short_and_says_how_it_is_run(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) <= MOST_LINES
    assert f"uv run docs/examples/{program.name}" in said and "Prints" in said


def test_the_list_names_every_program_once() -> None:
    listed = re.findall(r"^\| \[`(\w+\.py)`\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == [program.name for program in PROGRAMS]


def test_compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(_told("compare.py", monkeypatch, capsys))
    assert rows.pop("AR (target)") == "-"
    assert rows == dict.fromkeys(("SD (speculative)", "MTP", "NASD (ngram)", "AR again (control)"), "exact")


def test_own_drafter(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(_told("own_drafter.py", monkeypatch, capsys))
    assert rows["As before"] == rows["NASD (ngram)"] == rows["AR again (control)"] == "exact"


def test_own_rule(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told = _told("own_rule.py", monkeypatch, capsys)
    assert _rows(told)["SD cautious (cautious)"] == "exact"
    fixed, cautious = (map(int, line.split()) for line in re.findall(r"drafts of each round, \w+: (.+)", told))
    assert sum(cautious) < sum(fixed)


def test_read_csv_says_what_the_page_of_results_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = _told("read_csv.py", monkeypatch, capsys)
    assert told == _told("read_csv.py", monkeypatch, capsys, str(RESULTS / "quick" / "results.csv"))
    intervals = re.findall(r"(\d\.\d\d) \[(\d\.\d\d), (\d\.\d\d)\], 8 prompts", told)
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    quick = page[page.index("## quick") :].partition("\n## ")[0]
    assert len(intervals) == 4
    assert all(f"{middle} ({low} to {high}" in quick for middle, low, high in intervals)


def test_serve_and_ask_in_a_process_of_its_own(tmp_path: Path) -> None:
    """From another folder, on the small model. The program ends its server before it ends."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [python(), str(EXAMPLES / "serve_and_ask.py"), "--target", str(stand_in().model)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    target, ngram = (float(found) for found in re.findall(r"(\d\.\d\d) tokens/round", ended.stdout))
    assert target == 1.0 < ngram
    assert "same tokens as plain decoding: True" in ended.stdout
