"""The page as a document: it loads nothing from elsewhere, can be read, and colours as the terminal does."""

import http.client
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import pytest

from repl.screen.live import LAST_ROUND
from sampling.measure.answer import SpanKind
from serve.page import document as module
from serve.page.document import document
from tests.serve.running import Running

STYLE = (Path(module.__file__).parent / "page.css").read_text(encoding="utf-8")
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in STYLE.split("* {")[0].split("@media"))


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") < 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_has_the_contrast_of_aa(colours: dict[str, str]) -> None:
    on = dict.fromkeys(("ink", "soft", "accepted", "rejected", "target"), ("paper", "card"))
    on |= {"accepted": ("accepted-wash", "card"), "warn": ("warn-wash",), "on-first": ("first",), "first": ("card",)}
    pairs = [(ink, ground) for ink, grounds in on.items() for ground in grounds] + [("ink", "warn-wash")]
    assert {(ink, ground) for ink, ground in pairs if contrast(colours[ink], colours[ground]) < 4.5} == set()


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_tokens_have_the_colours_of_the_terminal(colours: dict[str, str]) -> None:
    assert set(LAST_ROUND) == set(get_args(SpanKind)) == {"accepted", "rejected", "target"}
    for kind, style in LAST_ROUND.items():
        red, green, blue = (int(colours[kind][place : place + 2], 16) for place in (1, 3, 5))
        strongest = {"red": red, "green": green, "blue": blue}
        assert max(strongest, key=strongest.__getitem__) == style.split()[-1]
        assert f".{kind} " in STYLE


def test_it_names_nothing_that_would_be_loaded() -> None:
    text = document().text
    assert re.findall(r"""(?:src|href|action)=["']?([^"'\s>]*)""", text) == ["data:,", "#texts", "metrics"]
    assert "//" not in text and "url(" not in text and "@import" not in text and "import(" not in text
    assert set(re.findall(r'fetch\("([^"]*)"', text)) == {"v1/chat/completions", "live"}


def test_the_policy_allows_its_own_style_and_script_and_no_other() -> None:
    text, policy = document()
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        assert f"{rule} 'sha256-{b64encode(sha256(content.encode()).digest()).decode()}';" in policy
    assert policy.startswith("default-src 'none'; ") and "connect-src 'self';" in policy and "unsafe" not in policy


def test_it_is_served_with_its_policy_to_whoever_asks(served: Running) -> None:
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Security-Policy"] == document().policy
    assert answer.read().decode() == document().text


def test_no_script_makes_elements_of_text() -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", document().text)
