"""The page in a headless browser, where there is one: what is seen while texts are written, and what it survives."""

import io
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from serve.limits import ServerLimits
from serve.page import look
from serve.page.texts import MOST_TEXTS
from tests.serve.browser import CHROMIUM, Browser, Page, browsing
from tests.serve.running import running
from tests.serve.stepping import kinds, stepped
from tests.serve.test_document import DARK, LIGHT
from tests.serve.test_leaving import begin
from tests.tiny import tiny_pair
from tests.waiting import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
LIVE = "by('state').dataset.state === 'live'"
DRAFTED: dict[str, Any] = {"speculative": {"method": "speculative", "gamma": 3}}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for the tests of this file."""
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


def near(page: Page, colour: str) -> int:
    """Pixels of a colour."""
    pixels = (matplotlib.image.imread(io.BytesIO(page.picture()))[:, :, :3] * 255).round()
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return int((np.abs(pixels - wanted).max(-1) < 8).sum())


def fill(page: Page, **values: str) -> None:
    """Fill the form and send it."""
    for name, value in values.items():
        page.run(f"by({name!r}).value = {value!r}")
    page.run("by('ask').requestSubmit()")
    page.until("by('outcome').textContent && !by('send').disabled")


def test_tokens_are_seen_in_their_colours_and_nothing_else_is_loaded(browser: Browser) -> None:
    with stepped(ServerLimits(size=3)) as steps, browser.opened(steps.url) as page:
        page.until(f"{LIVE} && !by('none').hidden")
        page.run("document.querySelector('.legend').remove()")  # which has the colours, too
        assert near(page, LIGHT["rejected"]) == 0
        connection = begin(steps.found, **DRAFTED)
        steps.begun(1)
        steps.until_last(lambda text: kinds(text) == {"accepted", "rejected", "target"})
        for kind in ("accepted", "rejected", "target"):
            page.until(f"[...document.querySelectorAll('#list .last .{kind}')].find(each => each.textContent.trim())")
        page.run("by('list').scrollIntoView()")
        assert all(near(page, LIGHT[kind]) > 10 for kind in ("accepted", "rejected", "target"))
        words = page.run("document.querySelector('#list .text').innerText")
        for word in ("SD (speculative)", "model tiny, 2 of 3 layers", "fixed, gamma 3", "rejection", "of 400"):
            assert word in words
        assert page.run("by('places').textContent") == "1 of 3"
        assert set(page.loaded) == {f"{steps.url}/", f"{steps.url}/live"} and page.complaints == []
        connection.close()


def test_prefix_hits_are_a_share_where_they_are_known(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[dict[str, int] | None] = [None]
    monkeypatch.setattr(look, "prefix_hits", lambda counters: known[0])
    with running(tiny_pair()) as found, browser.opened(found.url) as page:
        page.until(LIVE)
        assert page.run("by('prefix').textContent") == "–"
        assert page.run("by('prefix-more').textContent") == "none were looked up"
        known[0] = {"tokens": 30, "hits": 12}
        page.until("by('prefix').textContent === '40 %'")
        assert page.run("by('prefix-more').textContent") == "12 of 30 tokens of prompts"


SPOKEN = "<script>document.title='broken'</script><img src=x onerror=document.title='broken'>&amp;<b>b</b>"


def test_a_text_that_is_markup_is_shown_as_text(browser: Browser) -> None:
    with stepped(ServerLimits(size=3)) as steps, browser.opened(steps.url) as page:
        page.until(LIVE)
        connection = begin(steps.found, structured_outputs={"choice": [SPOKEN]})
        steps.begun(1)
        steps.until_last(lambda text: "<img src=x onerror=document.title='broken'>" in text.answer.text)
        page.until("by('list').textContent.includes('</script><img src=x onerror=')")
        assert page.run("by('list').querySelector('script, img, b')") is None
        assert page.run("document.title") == "tiny: speculative decoding, live" and page.complaints == []
        connection.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_all_of_it(browser: Browser, dark: bool) -> None:
    colours = DARK if dark else LIGHT
    with stepped() as steps, browser.opened(steps.url, 375, 812, dark, True) as page:
        page.until(LIVE)
        connection = begin(steps.found, prompt=["a", "b"], **DRAFTED)
        steps.begun(2)
        steps.play(8)
        page.until("by('list').children.length === 2 && by('list').querySelector('.last')")
        page.run("by('asking').open = true")
        assert page.run("document.documentElement.scrollWidth") == 375
        wide = "[...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > 375.5)"
        assert page.run(f"{wide}.map(each => each.id || each.className)") == []
        used = "[...document.querySelectorAll('button, input, select, textarea, summary')]"
        low = f"{used}.filter(each => each.checkVisibility() && each.getBoundingClientRect().height < 24)"
        assert page.run(f"{low}.map(each => each.id)") == []
        assert near(page, colours["paper"]) > 10_000 and near(page, colours["card"]) > 10_000
        connection.close()


def test_of_many_texts_the_newest_are_shown_with_a_count(browser: Browser) -> None:
    with stepped(ServerLimits(size=256)) as steps, browser.opened(steps.url) as page:
        connection = begin(steps.found, prompt=["a"] * 256)
        steps.begun(256)
        steps.play(2)
        page.until(f"by('list').children.length === {MOST_TEXTS} && by('places').textContent === '256 of 256'")
        assert f"{256 - MOST_TEXTS} more" in page.run("by('more').textContent")
        assert page.run("by('groups').innerText") == "AR (target) × 256"
        assert page.run("document.querySelectorAll('*').length") < 3000
        connection.close()


@pytest.mark.parametrize(
    ("parameters", "outcome"),
    [("gamma=2", "speculative: 12 tokens in"), ("gama=2", "not answered: "), ("gamma", "name=value")],
)
def test_the_form_asks_with_a_method_and_shows_what_comes(parameters: str, outcome: str, browser: Browser) -> None:
    with running(tiny_pair(), ServerLimits(size=3)) as found, browser.opened(found.url) as page:
        page.until(f"{LIVE} && by('asking').open && by('method').length")
        fill(page, prompt="Hello", method="speculative", parameters=parameters, length="12")
        assert outcome in page.run("by('outcome').textContent")
        assert bool(page.run("by('answer').textContent")) is outcome.startswith("speculative")
        methods = set(page.run("[...by('method').options].map(option => option.value)"))
        assert {"target", "speculative", "suffix"} <= methods and not {"beam", "mtp"} & methods


def test_it_says_when_the_server_is_gone_and_comes_back_with_the_next_one(browser: Browser) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first = ExitStack()
    found = first.enter_context(running(tiny_pair(), port=port))
    with browser.opened(found.url) as page:
        page.until(LIVE)
        first.close()
        page.until("by('state').dataset.state === 'lost' && failures >= 3")
        assert page.run("by('state-words').textContent").startswith("Not reachable. Last seen at ")
        assert "next try in" in page.run("by('countdown').textContent")
        assert page.run("document.body.classList.contains('stale')") and page.run("by('notice').hidden")
        with running(tiny_pair(), port=port):
            page.run("by('again').click()")
            page.until(f"{LIVE} && !by('notice').hidden")
            assert "began anew" in page.run("by('notice').textContent") and page.run("failures") == 0
            assert not page.run("document.body.classList.contains('stale')") and page.run("by('again').hidden")


def test_a_key_is_asked_for_until_it_is_right(browser: Browser) -> None:
    with running(tiny_pair(), ServerLimits(key="secret")) as found, browser.opened(found.url) as page:
        page.until("!by('key').hidden && document.activeElement.id === 'key-value'")
        first = page.run("by('key-words').textContent")
        page.run("by('key-value').value = 'secrets', by('key').requestSubmit()")
        page.until(f"!by('key').hidden && by('key-words').textContent !== {first!r}")
        page.run("by('key-value').value = 'secret', by('key').requestSubmit()")
        page.until(LIVE)
        fill(page, prompt="Hello", length="4")
        assert "4 tokens" in page.run("by('outcome').textContent")


def test_it_is_used_with_keys_alone_and_stands_still_when_told_to(browser: Browser) -> None:
    with stepped() as steps, browser.opened(steps.url) as page:
        connection = begin(steps.found)
        steps.begun(1)
        page.until(f"{LIVE} && by('list').children.length === 1")
        page.press("Tab", 9)
        assert page.run("document.activeElement.className") == "skip"
        page.press("Tab", 9)
        assert page.run("document.activeElement.id") == "pause"
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.press(" ", 32)
        page.until("by('state').dataset.state === 'paused'")
        steps.play(20)
        until(lambda: steps.driver.counters.rounds == 20)
        assert "0 of 400" in page.run("by('list').innerText")
        page.press(" ", 32)
        page.until(f"{LIVE} && by('list').innerText.includes('20 of 400')")
        page.press("Tab", 9)
        assert page.run("document.activeElement.tagName") == "SUMMARY"
        connection.close()
