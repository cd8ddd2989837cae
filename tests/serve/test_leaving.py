"""Clients that leave, rounds that fail, a server that ends: places become free, and the others go on."""

import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import InternalServerError

from sampling.batch import Batch
from serve.limits import ServerLimits
from tests.refusals import refused
from tests.serve.running import Running, running
from tests.tiny import tiny_pair
from tests.waiting import until

GREEDY = {"temperature": 0, "model": "tiny"}
LONG = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "temperature": 0}


def begin(found: Running, **more: Any) -> http.client.HTTPConnection:
    """A request whose answer nobody reads yet."""
    connection = http.client.HTTPConnection(urlsplit(found.url).netloc, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**LONG, **more}), {"Content-Type": "application/json"})
    return connection


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes a while, so that a text is under way when something happens."""
    play = Batch.play

    def slowly(self: Batch) -> Any:
        time.sleep(0.02)
        return play(self)

    monkeypatch.setattr(Batch, "play", slowly)


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_frees_the_place(slow: None, stream: bool) -> None:
    with running(tiny_pair(), ServerLimits(size=1)) as found:
        driver = found.server.driver
        connection = begin(found, stream=stream)
        until(lambda: driver.running == 1)
        waiting = begin(found, stream=stream)
        until(lambda: driver.waiting == 1)
        waiting.close()
        until(lambda: driver.waiting == 0)
        connection.close()
        until(lambda: driver.running == 0)
        assert driver.counters.finished["abort"] == 1
        assert found.client().completions.create(prompt="a", max_tokens=3, **GREEDY).choices


def test_who_leaves_while_the_prompt_is_read_frees_the_place(slow: None) -> None:
    """A row a round, beside a text that goes on; what it read is counted nowhere."""
    with running(tiny_pair(), ServerLimits(size=2, prefill_chunk=1)) as found:
        driver = found.server.driver
        first = begin(found)
        until(lambda: driver.counters.rounds > 0)
        second = begin(found, prompt=[5, 6, 7] * 60, max_tokens=3)
        until(lambda: any(text.reading is not None for batch in driver._groups.values() for text in batch.texts))
        assert driver.running == 2 and len(driver.under_way()[1].order.prompt) == 180
        second.close()
        until(lambda: driver.running == 1)
        assert driver.counters.finished["abort"] == 1 and driver.counters.prompt_tokens < 180
        first.close()
        until(lambda: driver.running == 0)
        read = found.client().completions.create(prompt=[5, 6, 7] * 60, max_tokens=3, **GREEDY)
        assert read.usage is not None and read.usage.prompt_tokens == 180


def test_a_round_that_fails_fails_its_texts_and_no_other(monkeypatch: pytest.MonkeyPatch, slow: None) -> None:
    play = Batch.play

    def broken(self: Batch) -> Any:
        if self.live and self.live[0].request.prompt[-1] == 9:
            raise RuntimeError("planted")
        return play(self)

    monkeypatch.setattr(Batch, "play", broken)
    with running(tiny_pair(), ServerLimits(size=4)) as found:
        client, driver = found.client(), found.server.driver
        expected = client.completions.create(prompt="ab", max_tokens=30, **GREEDY).choices[0].text
        texts: list[str] = []

        def ask() -> None:
            answer = client.completions.create(
                prompt="ab", max_tokens=30, extra_body={"speculative": {"method": "speculative"}}, **GREEDY
            )
            texts.append(answer.choices[0].text)

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: driver.running == 1)
        with refused(500, "RuntimeError", error=InternalServerError):
            client.completions.create(prompt=[5, 9], max_tokens=30, **GREEDY)
        thread.join()
        assert texts == [expected]
        assert client.completions.create(prompt="ab", max_tokens=30, **GREEDY).choices[0].text == expected
        assert driver.counters.finished["error"] == 1 and driver.running == 0


def test_a_stream_that_fails_says_so_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    play, rounds = Batch.play, iter(range(100))

    def broken(self: Batch) -> Any:
        if next(rounds) == 4:  # the first one reads the prompt
            raise RuntimeError("planted")
        return play(self)

    monkeypatch.setattr(Batch, "play", broken)
    with running(tiny_pair()) as found:
        body = begin(found, stream=True).getresponse().read().decode()
        events = [line.removeprefix("data: ") for line in body.splitlines() if line]
        assert "error" in json.loads(events[-1]) and "[DONE]" not in events and len(events) == 4


def test_a_server_that_ends_tells_who_waits(slow: None) -> None:
    with running(tiny_pair(), ServerLimits(size=1)) as found:
        connection = begin(found)
        until(lambda: found.server.driver.running == 1)
        found.server.driver.close()
        response = connection.getresponse()
        assert response.status == 503 and "has ended" in response.read().decode()
        response = begin(found).getresponse()
        assert response.status == 503 and "about to end" in response.read().decode()


def test_what_is_open_when_a_server_is_stopped_gets_an_end(slow: None) -> None:
    with running(tiny_pair(), ServerLimits(size=1)) as found:
        written, waiting = begin(found, stream=True), begin(found)
        seen = http.client.HTTPConnection(urlsplit(found.url).netloc, timeout=60)
        seen.request("GET", "/live")
        assert seen.getresponse().readline().startswith(b"data: ")
        until(lambda: found.server.driver.running == 1 and found.server.driver.waiting == 1)
        stream = written.getresponse()
    last = [line for line in stream.read().decode().splitlines() if line][-1]
    assert "the server has ended" in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert waiting.getresponse().status == 503


def test_idle_groups_give_way() -> None:
    with running(tiny_pair(), ServerLimits(size=2)) as found:
        for gamma in range(1, 12):
            extra = {"speculative": {"method": "speculative", "gamma": gamma}}
            found.client().completions.create(prompt="a", max_tokens=3, extra_body=extra, **GREEDY)
        groups = [dict(configuration.parameters)["gamma"] for configuration in found.server.driver._groups]
        assert groups == [8, 9, 10, 11], "those that were asked for last"
        assert len(found.server.driver.engine._kept) <= 2
