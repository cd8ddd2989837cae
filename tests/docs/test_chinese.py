"""The Chinese pages say what the English ones say: the same headings, blocks, formulas, figures, code and numbers."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import BOOK, PAGES, ROOT, blocks, inline_code, page_name, prose, unfenced

ZH = ROOT / "docs" / "zh"
# Each Chinese page and the one that it translates.
PAIRS = {ROOT / "README.zh-CN.md": ROOT / "README.md", **{page: BOOK / page.name for page in sorted(ZH.glob("*.md"))}}
HAN = re.compile(r"[\u4e00-\u9fff]")
_LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")


def headings(page: Path) -> list[str]:
    """The levels of the page's headings, in order."""
    return re.findall(r"^(#+) ", unfenced(page), flags=re.MULTILINE)


def fenced(page: Path) -> list[tuple[str, str]]:
    """The language and the text of each fenced block."""
    return [(block.language, block.text) for block in blocks() if block.page == page]


def formulas(page: Path) -> Counter[str]:
    """What stands between dollar signs; a line break in it is a space."""
    return Counter(" ".join(found.split()) for found in re.findall(r"\$+([^$]+)\$+", prose(page)))


def numbers(page: Path) -> Counter[str]:
    """Numbers with a point, those of intervals among them."""
    return Counter(re.findall(r"\d+\.\d+", re.sub(r"\$+[^$]+\$+", "", prose(page))))


def intervals(page: Path) -> list[str]:
    """Intervals as tests/docs/test_pages.py looks them up in the records."""
    return re.findall(r"\d+\.\d+ \(\d+\.\d+ to \d+\.\d+\)", unfenced(page))


def code(page: Path) -> Counter[str]:
    """What stands between backticks."""
    return Counter(inline_code(page))


def places(page: Path) -> Counter[tuple[str, str]]:
    """Where links and figures lead: a translated page counts as its original, and the pages themselves do not."""
    english = {zh.resolve(): original for zh, original in PAIRS.items()}
    found: Counter[tuple[str, str]] = Counter()
    for mark, link in _LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if not link.startswith("https://"):
            place = (page.parent / path).resolve() if path else page
            link = f"{english.get(place, place).relative_to(ROOT)}#{anchor}"
        found[mark, link] += 1
    return found


def rows(page: Path) -> int:
    """Lines of tables."""
    return len(re.findall(r"^\|.*\|$", unfenced(page), flags=re.MULTILINE))


@pytest.mark.parametrize(
    "what", [headings, fenced, formulas, numbers, intervals, code, rows], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("page", PAIRS, ids=page_name)
def test_a_translation_has_what_its_original_has(page: Path, what: Callable[[Path], object]) -> None:
    assert what(page) == what(PAIRS[page])


@pytest.mark.parametrize("page", PAIRS, ids=page_name)
def test_a_translation_leads_where_its_original_leads(page: Path) -> None:
    """To more pages at the most: those that are there in Chinese."""
    missing = places(PAIRS[page]) - places(page)
    assert not missing
    assert set(places(page)) <= set(places(PAIRS[page])) | {("", f"{page_name(one)}#") for one in PAIRS.values()}


@pytest.mark.parametrize("page", PAIRS, ids=page_name)
def test_each_page_begins_with_the_way_to_the_other(page: Path) -> None:
    """And is in its language: two thirds of the lines of a translation's prose that hold letters hold Chinese."""
    here, there = (one.read_text(encoding="utf-8").splitlines()[2] for one in (page, PAIRS[page]))
    assert re.fullmatch(r"\[English\]\((\S+)\) \| 简体中文", here)
    assert re.fullmatch(r"English \| \[简体中文\]\((\S+)\)", there)
    lines = [line for line in prose(page).splitlines() if re.search(r"[A-Za-z\u4e00-\u9fff]", line)]
    assert sum(bool(HAN.search(line)) for line in lines) > 2 / 3 * len(lines)


def test_chinese_pages_are_among_the_pages_that_are_tested() -> None:
    assert {*PAIRS, *PAIRS.values()} <= set(PAGES) and len(PAIRS) == 3


def test_what_falls_behind_is_seen(tmp_path: Path) -> None:
    """A heading, a number, a formula and a word of code that a translation lacks."""
    page = tmp_path / "a.md"
    for text, what in (
        ("# a", headings),
        ("1.5 (1.2 to 1.8)", numbers),
        ("$x$ is", formulas),
        ("`a` is", code),
        ("|a|", rows),
    ):
        page.write_text(f"{text}\n{text}\n")
        whole = what(page)
        page.write_text(f"{text}\n")
        assert what(page) != whole
