"""Engines that read prompts in one server and decode in another: asked at their router, which has no other page."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from engines.fleet import ready
from engines.spec import EngineSpec
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.serve.running import running
from tests.tiny import tiny_pair
from utils.events import WholeAnswer

PROMPT = [9, 8, 7, 6, 5, 40, 41, 42]


@contextmanager
def router(prefill: str, decode: str, asked: list[tuple[str, int]]) -> Iterator[str]:
    """What vLLM's example of such a router does: one token from the first server, the answer from the second."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._ask(prefill, {**body, "max_tokens": 1, "stream": False, "stream_options": None}).read()
            answer = self._ask(decode, body)
            self.send_response(answer.status)
            self.end_headers()
            while part := answer.read1(65536):
                self.wfile.write(part)

        def _ask(self, url: str, body: dict[str, Any]) -> http.client.HTTPResponse:
            asked.append((url, body["max_tokens"]))
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
            sent = {name: value for name, value in body.items() if value is not None}
            connection.request("POST", self.path, json.dumps(sent), {"Content-Type": "application/json"})
            return connection.getresponse()

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.mark.parametrize("dialect", ["workbench", "vllm"])
def test_a_router_is_asked_as_a_server_is(dialect: str) -> None:
    asked: list[tuple[str, int]] = []
    pair, values = tiny_pair(), Settings()
    values.assign("length", "12")
    expected = [
        event for event in PairEngine(tiny_pair()).stream("target", values, PROMPT) if hasattr(event, "emitted")
    ]
    with running(tiny_pair()) as reads, running(tiny_pair()) as writes, router(reads.url, writes.url, asked) as url:
        spec = EngineSpec("split", "openai", dialect, url=url, model="tiny")
        with ready([spec], PairEngine(pair)) as engines:
            (answer,) = engines["split"].stream("target", values, PROMPT)
    assert isinstance(answer, WholeAnswer)
    assert list(answer.output_ids) == [token for round in expected for token in round.emitted]
    assert [one for one in asked if one[1] == 12] == [(writes.url, 12)], "the answer comes from who decodes"
    assert asked.count((reads.url, 1)) == 2, "and each prompt was read first, that of the greeting too"


def test_nobody_behind_an_address_is_told_before_anything_is_played() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as gone:
        url = f"http://127.0.0.1:{gone.server_address[1]}"
    spec = EngineSpec("split", "openai", "vllm", url=url, model="tiny")
    with refused("engine split", f"{url}/health"), ready([spec], PairEngine(tiny_pair())):
        pass
