"""Every method has its row among the published figures, and every row of ours says which run it is of."""

import re

from sampling.methods.tables import METHODS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "published.md").read_text(encoding="utf-8").split("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_method_has_a_row() -> None:
    named = [name for names, *_ in ROWS for name in re.findall(r"`(\w+)`", names)]
    assert sorted(named) == sorted(METHODS)


def test_a_figure_of_ours_names_its_run() -> None:
    runs = {folder.name for folder in (ROOT / "docs" / "results").iterdir() if folder.is_dir()}
    for names, _, ours, _ in ROWS:
        cited = re.findall(r"(?:plan|run) `(\w+)`", ours)
        assert bool(cited) == bool(re.search(r"\d\.\d", ours)) and set(cited) <= runs, names
