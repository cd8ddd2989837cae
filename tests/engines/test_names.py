"""What a running server calls its model, where the plan does not say."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engines.fleet import ready
from engines.spec import EngineSpec
from sampling.pair.pair_engine import PairEngine
from tests.tiny import tiny_pair


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ({"data": [{"id": "/weights/m"}]}, "/weights/m"),
        ({"data": [{"id": "a"}, {"id": "b"}]}, ""),
        ({"data": []}, ""),
        ([1], ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("given", ["", "mine"])
def test_a_server_with_one_model_is_asked_for_that(page: Any, expected: str, given: str) -> None:
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if page is None and self.path == "/v1/models" else 200)
            self.end_headers()
            self.wfile.write(json.dumps(page).encode())

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"])
            self.send_response(200)
            self.end_headers()
            choice = {"text": "x", "token_ids": [5], "finish_reason": "length"}
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    home = PairEngine(tiny_pair())
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{found.server_address[1]}"
        with ready([EngineSpec("v", "openai", "vllm", url=url, model=given)], home):
            pass
        found.shutdown()
    assert asked and set(asked) == {given or expected or home.describe().target.name}
