"""Servers that go wrong in the middle: the answer that is lost is a failed row, and all others are there."""

import json
import math
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from engines.server import api
from engines.server.api import Api
from engines.server.served import ServedEngine
from engines.spec import EngineSpec
from sampling.engine import Text
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.forked import python
from tests.refusals import refused
from tests.tiny import tiny_pair
from tests.waiting import PATIENCE_S, until
from utils.errors import UserError
from utils.events import FailedText, WholeAnswer

GOOD = [{"choices": [{"text": "x", "token_ids": [5, 6], "finish_reason": "length"}]}]
COUNTS = {"num_draft_tokens": 2, "num_accepted_draft_tokens": 1, "num_spec_steps": 1, "acceptance_histogram": [1, 1]}
FAULTS: dict[str, Any] = {
    "big": [{"choices": [{"text": "x", "token_ids": [10**9], "finish_reason": "length"}]}],
    "negative": [{"choices": [{"text": "x", "token_ids": [-1], "finish_reason": "length"}]}],
    "text": [{"choices": [{"text": "x", "token_ids": ["x"], "finish_reason": "length"}]}],
    "list": [[1]],
    "empty metrics": [*GOOD, {"choices": [], "metrics": {"speculative_decoding": {"num_spec_steps": 1}}}],
    "no end": [{"choices": [{"text": "x", "token_ids": [5], "finish_reason": None}]}],
    "NaN counts": [
        *GOOD[:-1],
        {**GOOD[-1], "metrics": {"speculative_decoding": COUNTS | {"num_draft_tokens": math.nan}}},
    ],
    "half counts": [*GOOD, {"choices": [], "metrics": {"speculative_decoding": COUNTS | {"num_draft_tokens": 2.5}}}],
    "more than asked": [{"choices": [{"text": "x", "token_ids": [5] * 9, "finish_reason": "length"}]}],
    "an end of no name": [{"choices": [{"text": "x", "token_ids": [5], "finish_reason": 5}]}],
    "nested": b"data: " + b"[" * 100_000 + b"\n\n",
    "error": [{"error": {"message": "out of memory"}}],
    "no JSON": "data: {\n\n",
    "no UTF-8": b"data: \xff\n\n",
    "refused": 500,
}


@contextmanager
def server(faults: dict[int, Any]) -> Iterator[str]:
    """A server in vLLM's shape whose answers to some requests, counted from 0, are wrong."""
    count, lock = iter(range(10**6)), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                told = faults.get(next(count), GOOD)
            self.send_response(told if isinstance(told, int) else 200)
            self.end_headers()
            if isinstance(told, list):
                told = "".join(f"data: {json.dumps(event)}\n\n" for event in told)
            if not isinstance(told, int):
                self.wfile.write(told if isinstance(told, bytes) else told.encode())

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_fails_fails_alone(fault: str) -> None:
    values: dict[str, Any] = {**Settings(), "length": 2}
    with server({3: FAULTS[fault]}) as url:  # behind the one that is not timed, the third
        engine = ServedEngine(PairEngine(tiny_pair()), EngineSpec("v", "openai", "vllm", model="m"), lambda _: Api(url))
        texts = [Text(number, [1, 2, 3], 2) for number in range(6)]
        found = dict(engine.stream_many("prompt_lookup", values, texts, 1))
        assert [number for number, one in found.items() if isinstance(one, FailedText)] == [2]
        assert all(isinstance(found[number], WholeAnswer) for number in (0, 1, 3, 4, 5))
    with server({1: FAULTS[fault]}) as url:
        engine = ServedEngine(PairEngine(tiny_pair()), EngineSpec("v", "openai", "vllm", model="m"), lambda _: Api(url))
        with pytest.raises(UserError):
            list(engine.stream("prompt_lookup", values, [1, 2, 3]))
        (answer,) = engine.stream("prompt_lookup", values, [1, 2, 3])
        assert isinstance(answer, WholeAnswer) and answer.acceptance.rounds is None, "it told nothing of its rounds"


def test_ids_that_are_told_again_are_taken_once() -> None:
    def event(ids: list[int], total: int, end: bool = False) -> dict[str, Any]:
        about = {"completion_tokens": total, "finish_reason": {"type": "length"} if end else None}
        return {"text": "x", "output_ids": ids, "meta_info": about}

    cumulative = [event([5], 1), event([5, 6, 7], 3), event([5, 6, 7, 8], 4, True)]
    increments = [event([5], 1), event([6, 7], 3), event([8], 4, True)]
    for told in (cumulative, increments):
        with server({0: told, 1: told}) as url:
            spec = EngineSpec("s", "openai", "sglang", model="m")
            engine = ServedEngine(PairEngine(tiny_pair()), spec, lambda _, url=url: Api(url))
            (answer,) = engine.stream("target", {**Settings(), "length": 4}, [1, 2, 3])
            assert isinstance(answer, WholeAnswer) and answer.output_ids == (5, 6, 7, 8)


HANGING = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def do_POST(self):
        open(sys.argv[2], "w").close(); self.send_response(200); self.end_headers(); time.sleep(600)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.parametrize(
    "call",
    ["list(engine.stream('target', values, [1]))", "list(engine.stream_many('target', values, [Text(0, [1], 2)], 2))"],
)
def test_ctrl_c_ends_what_waits_for_a_server_that_hangs(tmp_path: Path, call: str) -> None:
    asked = tmp_path / "asked"
    launch = shlex.join([sys.executable, "-c", HANGING, "{port}", str(asked)])
    program = (
        "from engines.server.launch import Launcher\nfrom engines.server.served import ServedEngine\n"
        "from engines.spec import EngineSpec\nfrom engines.tables import DIALECTS\nfrom sampling.engine import Text\n"
        "from sampling.pair.pair_engine import PairEngine\nfrom sampling.methods.settings import Settings\n"
        "from tests.tiny import tiny_pair\n"
        f"with Launcher({launch!r}, DIALECTS['vllm'], 'm') as launcher:\n"
        "    spec = EngineSpec('h', 'openai', 'vllm', model='m')\n"
        "    engine = ServedEngine(PairEngine(tiny_pair()), spec, launcher.api_of)\n"
        "    values = {**Settings(), 'length': 2}\n"
        "    engine._warm.add(launcher.api_of({'method': 'naive'}))\n"
        f"    print('ready', flush=True)\n    {call}\n"
    )
    with subprocess.Popen([python(), "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        until(asked.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) != 0


@pytest.mark.parametrize("endless", [b": nothing\n" * 5000, b"data: " + b"x" * 50_000, b"data: {}\n\n" * 5000])
def test_an_answer_without_an_end_is_given_up(endless: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_MOST_BYTES", 20_000)
    with server({0: endless}) as url, refused("20,000"):
        list(Api(url).events("/v1/completions", {}))


def test_a_page_that_breaks_off_is_refused_with_its_address() -> None:
    """The connection is reset in the middle of the content."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with refused(f"{url}/v1/models"):
            Api(url).get("/v1/models")
        answering.join()
