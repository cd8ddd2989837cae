"""The pages of the project, and what stands in them: fenced blocks, prose, headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs" / "book"
# Its commands need the files that it adds: test_add_a_method.py follows it in a copy.
WALK_THROUGH = ROOT / "docs" / "add-a-method.md"
# Reports are not pages: a command renders them beside their rows.
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            page
            for name in ("docs", "models", "ablation")
            for page in (ROOT / name).rglob("*.md")
            if page.parent.suffix != ".report"
        ),
    ]
)

_FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", flags=re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


class CodeBlock(NamedTuple):
    """A fenced block: where it stands, its language, its text."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def page_name(page: Path) -> str:
    """How a test names a page."""
    return str(page.relative_to(ROOT))


def blocks() -> Iterator[CodeBlock]:
    """Every fenced block of every page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            yield CodeBlock(page, text.count("\n", 0, match.start()) + 1, match[2], match[3])


def blocks_of(*languages: str) -> list[CodeBlock]:
    """Every block in one of the languages."""
    return [block for block in blocks() if block.language in languages]


def unfenced(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def prose(page: Path) -> str:
    """The page without its fenced blocks and its inline code."""
    return _CODE.sub("", unfenced(page))


def inline_code(page: Path) -> list[str]:
    """What stands between single backticks; a line break in it is a space."""
    return [" ".join(code.split()) for code in _CODE.findall(unfenced(page))]


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings are linked."""
    headings = re.findall(r"^#+ (.+)$", unfenced(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
