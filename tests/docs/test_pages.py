"""Links lead somewhere, formulas survive, figures and numbers are those of the records, on every page."""

import re
from pathlib import Path

import pytest

from scripts.api_reference import api_page
from tests.docs.pages import BOOK, PAGES, ROOT, anchors, page_name, prose
from tests.docs.records import RESULTS, recorded_intervals

BENCHMARKS = ROOT / "docs" / "benchmarks.md"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_INTERVAL = re.compile(r"\d+\.\d+ to \d+\.\d+(?=[);])")
# Markdown takes the backslash from these before mathematics is set.
_ESCAPED = re.compile(r"\\[^A-Za-z\s]")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(place), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_formulas_survive_markdown(page: Path) -> None:
    text = prose(page)
    assert text.count("$$") % 2 == 0
    displayed = re.findall(r"\$\$(.+?)\$\$", text, flags=re.DOTALL)
    inline = re.findall(r"\$([^$\n]+)\$", re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL))
    for formula in (*displayed, *inline):
        assert not _ESCAPED.search(formula), formula
        assert formula.count("{") == formula.count("}"), formula


def test_quoted_intervals_are_those_of_the_records() -> None:
    """New runs change the rows and the pages that record them; the other pages must follow."""
    results, benchmarks = (page.read_text(encoding="utf-8") for page in (RESULTS / "README.md", BENCHMARKS))
    recorded = recorded_intervals()
    told = set(_INTERVAL.findall(results))
    assert told and told <= recorded
    pages = [page for page in PAGES if page.parent != RESULTS and page != BENCHMARKS]
    quoted = {found for page in pages for found in _INTERVAL.findall(page.read_text(encoding="utf-8"))}
    assert quoted and not {found for found in quoted - recorded if found not in results + benchmarks}


def test_results_hold_what_no_command_can_make() -> None:
    """Records, manifests and pictures that pages show; scripts/report_ablation.py makes the rest."""
    shown = {(page.parent / link).resolve() for page in PAGES for link in _LINK.findall(prose(page))}
    records = {"README.md", "growth.json", "results.csv", "results.manifest.json"}
    kept = [path for path in RESULTS.rglob("*") if path.is_file() and path.parent.suffix != ".report"]
    assert not [path for path in kept if path.name not in records and path not in shown]


def test_figures_of_the_book_are_shown_and_there() -> None:
    shown = {link for page in BOOK.glob("*.md") for link in _LINK.findall(prose(page)) if link.startswith("figures/")}
    assert shown == {f"figures/{figure.name}" for figure in (BOOK / "figures").iterdir()}


def test_the_api_reference_is_what_the_docstrings_say() -> None:
    """After a change: uv run scripts/generate_docs.py"""
    assert api_page() == (ROOT / "docs" / "api-reference.md").read_text(encoding="utf-8")
