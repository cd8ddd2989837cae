"""How long the sentences of the pages are: mean and 90th percentile of words, page by page.

uv run scripts/plain_english.py
uv run scripts/plain_english.py docs/session.md --longest 5
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

ROOT = Path(__file__).resolve().parent.parent
MEAN, P90 = 18, 32
"""Goals, in words a sentence."""
_FENCED = re.compile(r"^```.*?^```$|^\$\$.*?\$\$$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^\s*(?:\||#|!\[|>?\s*$)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z`\"'(*$0-9])")
_WORD = re.compile(r"[A-Za-z0-9][\w'.,/%-]*")

Pages = Annotated[list[Path] | None, typer.Argument(metavar="PAGE ...", help="Default: README and all pages of docs/.")]
Longest = Annotated[int, typer.Option(min=0, help="Also print so many of the longest sentences.")]


def main(pages: Pages = None, longest: Longest = 0) -> None:
    """Print sentences, mean and P90 a page; a star stands where a goal is missed."""
    found = {page: [*sentences(page.read_text(encoding="utf-8"))] for page in pages or default_pages()}
    whole = [sentence for of_page in found.values() for sentence in of_page]
    for name, of_page in [*((str(page), of_page) for page, of_page in found.items()), ("all", whole)]:
        counts = [*map(words, of_page)]
        if counts:
            mean, p90 = float(np.mean(counts)), float(np.percentile(counts, 90))
            star = " *" if mean > MEAN or p90 > P90 else ""
            print(
                f"{name.removeprefix(f'{ROOT}/'):48} {len(counts):5} sentences  mean {mean:4.1f}  P90 {p90:3.0f}{star}"
            )
    for sentence in sorted(whole, key=words, reverse=True)[:longest]:
        print(f"\n{words(sentence)}: {sentence}")


def default_pages() -> list[Path]:
    """README, changelog and the English pages of docs/, without what programs write."""
    written = {"api-reference.md", "models.md"}
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in written]
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *(page for page in pages if "zh" not in page.parts)]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page's paragraphs and lists; tables, headings, code and formulas are none."""
    paragraph: list[str] = []
    for line in [*_FENCED.sub("", text).splitlines(), ""]:
        if _ITEM.match(line) or _LINE.match(line):
            yield from _split(" ".join(paragraph))
            paragraph = []
        if not _LINE.match(line):
            paragraph.append(_ITEM.sub("", line).strip().removeprefix("> "))


def _split(paragraph: str) -> Iterator[str]:
    plain = _LINK.sub(r"\1", paragraph)
    yield from (sentence.strip() for sentence in _END.split(plain) if words(sentence))


def words(sentence: str) -> int:
    """Words and numbers; what stands between backticks or dollar signs is one each."""
    return len(_WORD.findall(re.sub(r"`[^`]*`|\$[^$]*\$", "x", sentence)))


if __name__ == "__main__":
    typer.run(main)
