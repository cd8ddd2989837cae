"""The page as one document: it loads nothing else, and the browser is told to let it load nothing else."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent
_SCRIPTS = ("format.js", "texts.js", "overview.js", "ask.js", "watch.js")


class Document(NamedTuple):
    """The text of the page, and its Content-Security-Policy."""

    text: str
    policy: str


@cache
def document() -> Document:
    """The page with its style and its scripts inside."""
    style = _read("page.css")
    script = "\n".join(map(_read, _SCRIPTS))
    text = _read("page.html").replace("{style}", style).replace("{script}", script)
    policy = (
        f"default-src 'none'; script-src {_allowed(script)}; style-src {_allowed(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Document(text, policy)


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _allowed(content: str) -> str:
    """What a policy calls an element with this content."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
