"""The site's pages that lie outside docs/, and links that leave docs/. mkdocs calls these functions (mkdocs.yml)."""

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh/index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files of the root, and the site's page of each."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the checkout into links between pages of the site."""
    here = page.file.src_uri
    place = {site: source for source, site in PAGES.items()}.get(here, f"docs/{here}")
    parts = _FENCED.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _on_site(link, place, here, files), part) for part in parts[::2]]
    return "".join(parts)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write formulas as MathML, which browsers draw without a script."""
    return _FORMULA.sub(lambda formula: _math(formula[1], formula[2]), content)


def _math(element: str, formula: str) -> str:
    return convert(html.unescape(formula), display="block" if element == "div" else "inline")


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """Give a Chinese page the theme's words in Chinese."""
    config.theme["language"] = "zh" if page.file.src_uri.startswith("zh/") else "en"
    return context


def _on_site(link: re.Match[str], place: str, here: str, files: Files) -> str:
    """A link of the file `place` as the page `here` has it. A file that the site lacks leaves its name alone."""
    mark, words, target = link.groups()
    path, hash_, anchor = target.partition("#")
    if "://" in target or not path:
        return link[0]
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    wanted = PAGES.get(wanted, wanted.removeprefix("docs/"))
    if files.get_file_from_path(wanted) is None:
        return words
    return f"{mark}[{words}]({posixpath.relpath(wanted, posixpath.dirname(here) or '.')}{hash_}{anchor})"
