"""The book says what is true of the code: its excerpts are the files', its programs run, its links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.api_reference import api_page

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs" / "book"
PAGES = [*sorted(BOOK.glob("*.md")), ROOT / "docs" / "api-reference.md"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"# from (\S+)\n")
_INTERVAL = re.compile(r"\d+\.\d+ to \d+\.\d+(?=[);])")
# Markdown takes the backslash from these before mathematics is set.
_ESCAPED = re.compile(r"\\[^A-Za-z\s]")


class Block(NamedTuple):
    """A fenced block: where it stands, its language, its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def _blocks(language: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match[1] == language:
                yield Block(page, text.count("\n", 0, match.start()) + 1, language, match[2])


def _prose(page: Path) -> str:
    """The page without its fenced blocks and its inline code."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def _anchors(page: Path) -> set[str]:
    """The names under which a page's headings are linked."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


EXCERPTS = [block for block in _blocks("python") if block.text.startswith("# from ")]
PROGRAMS = [block for block in _blocks("python") if not block.text.startswith("# from ")]
COMMANDS = list(_blocks("bash"))


def test_there_is_something_to_test() -> None:
    assert len(PAGES) == 11 and EXCERPTS and PROGRAMS and COMMANDS


@pytest.mark.parametrize("block", EXCERPTS, ids=str)
def test_an_excerpt_is_a_part_of_its_file(block: Block) -> None:
    source = _SOURCE.match(block.text)
    assert source, "an excerpt begins with the path of its file and nothing else"
    text = block.text[source.end() :].strip("\n")
    assert text and text in (ROOT / source[1]).read_text(encoding="utf-8"), f"not in {source[1]}"


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_runs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__book__"})


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_names_files_and_methods_that_exist(block: Block) -> None:
    for command in block.text.replace("\\\n", " ").splitlines():
        words = command.split("#")[0].split()
        assert words[:2] == ["uv", "run"], command
        assert words[2] == "pytest" or (ROOT / words[2]).is_file(), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_prose(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{link}: no such file"
        assert not anchor or anchor in _anchors(place), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_formulas_survive_markdown(page: Path) -> None:
    prose = _prose(page)
    assert prose.count("$$") % 2 == 0
    displayed = re.findall(r"\$\$(.+?)\$\$", prose, flags=re.DOTALL)
    inline = re.findall(r"\$([^$\n]+)\$", re.sub(r"\$\$.+?\$\$", "", prose, flags=re.DOTALL))
    for formula in (*displayed, *inline):
        assert not _ESCAPED.search(formula), formula
        assert formula.count("{") == formula.count("}"), formula


def test_quoted_intervals_are_those_of_the_records() -> None:
    """New runs change the pages that record them; the book must follow."""
    recorded = "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("benchmarks.md", "results/README.md")
    )
    quoted = {found for page in PAGES for found in _INTERVAL.findall(page.read_text(encoding="utf-8"))}
    assert quoted and not {interval for interval in quoted if interval not in recorded}


def test_figures_are_shown_and_there() -> None:
    shown = {link for page in PAGES for link in _LINK.findall(_prose(page)) if link.startswith("figures/")}
    assert shown == {f"figures/{figure.name}" for figure in (BOOK / "figures").iterdir()}


def test_the_api_reference_is_what_the_docstrings_say() -> None:
    """After a change: uv run scripts/generate_docs.py"""
    assert api_page() == (ROOT / "docs" / "api-reference.md").read_text(encoding="utf-8")
