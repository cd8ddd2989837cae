"""The pictures of the page in the docs. RECORD=1 takes them anew, while the default models write."""

import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAIError
from PIL import Image

from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from serve.limits import ServerLimits
from tests.docs.pages import ROOT
from tests.serve.browser import CHROMIUM, Page, browsing
from tests.serve.running import Running, running
from tests.waiting import until

DOCS = ROOT / "docs"
# How large, whether dark, and whether on a phone.
PICTURES = {"server.png": (1200, 1010, False, False), "server-phone.png": (375, 1500, True, True)}
MOST_BYTES = 120_000
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("Write a short poem about the sea.", {"method": "mtp"}),
    ("Explain what a steam engine does.", {"method": "target"}),
    ("Name the planets, with one fact about each.", {"method": "auto"}),
    ("Why do leaves change colour in autumn?", {"method": "speculative", "verify_strategy": "typical"}),
    ("Count from one to fifty in words.", {"method": "suffix"}),
    ("How do I bake bread at home?", {"method": "egag"}),
    ("What is a suffix tree?", {"method": "speculative", "gamma": 2}),
]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_on_its_page(name: str) -> None:
    width, height, _, _ = PICTURES[name]
    assert f"]({name})" in (DOCS / "server.md").read_text(encoding="utf-8")
    assert (DOCS / name).stat().st_size < MOST_BYTES
    with Image.open(DOCS / name) as picture:
        assert picture.size == (width, height)


def ask(found: Running, question: str, speculative: dict[str, Any]) -> None:
    """Ask a question, whose answer nobody reads to its end."""
    messages: Any = [{"role": "user", "content": question}]
    try:
        found.client().chat.completions.create(
            model=found.server.model.name,
            messages=messages,
            max_tokens=400,
            temperature=0.7 if "verify_strategy" in speculative else 0,
            extra_body={"speculative": speculative},
            timeout=600,
        )
    except OpenAIError:  # the server has ended
        return


@pytest.mark.skipif(CHROMIUM is None or "RECORD" not in os.environ, reason="takes pictures with RECORD=1 and chromium")
@pytest.mark.timeout(600)
def test_take_the_pictures(tmp_path: Path) -> None:
    limits = ServerLimits(size=len(ASKED) - 1)
    with browsing(tmp_path) as browser, running(load_pair(LoadOptions()), limits) as found:
        for asked in ASKED:
            threading.Thread(target=ask, args=(found, *asked), daemon=True).start()
        driver = found.server.driver
        until(lambda: driver.running == limits.size and all(job.metrics.new_tokens > 20 for job in driver.under_way()))
        for name, (width, height, dark, phone) in PICTURES.items():
            with browser.opened(found.url, width, height, dark, phone) as page:
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
                page.call("Emulation.setDeviceMetricsOverride", **size)
                page.until("by('list').children.length > 3 && document.querySelector('#list .last .rejected')")
                save(page, DOCS / name)


def save(page: Page, file: Path) -> None:
    """A picture of few colours."""
    with Image.open(io.BytesIO(page.picture())) as picture:
        picture.convert("RGB").quantize(224, dither=Image.Dither.NONE).save(file, optimize=True)
