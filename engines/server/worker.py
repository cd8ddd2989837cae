"""Another engine behind the one route that we ask: no server of its own lies between.

Run by the Python of that engine's environment: `python worker.py MODULE PORT WORDS ...`. MODULE lies beside this file;
its `load(words)` gives the engine's version and what answers a request. Standard library alone. Rounds are streamed in
the shape of vLLM's server.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from itertools import chain
from typing import Any

Answer = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
"""From a request to the events of its stream."""


def handler(version: str, answer: Answer) -> type[BaseHTTPRequestHandler]:
    """The routes of a worker."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"version": version})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                stream = answer(body)
                first = next(stream)
            except Exception as error:  # named in the answer: the asker prints it
                self._send(400, {"error": {"message": f"{type(error).__name__}: {error}"}})
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with suppress(OSError):  # who asked has left
                for event in chain((first,), stream):
                    self._write(f"data: {json.dumps(event)}\n\n")
                self._write("data: [DONE]\n\n")

        def log_message(self, *args: Any) -> None:
            """Nothing."""

        def _send(self, status: int, content: dict[str, Any]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self._write(json.dumps(content))

        def _write(self, text: str) -> None:
            self.wfile.write(text.encode())
            self.wfile.flush()

    return Handler


def main() -> None:
    """Load, then listen. What cannot be loaded is the last that is printed, and in one piece."""
    module, port, *words = sys.argv[1:]
    try:
        version, answer = import_module(module).load(words)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
    ThreadingHTTPServer.request_queue_size = 128  # many ask at once; five would be let in, and others cut off
    ThreadingHTTPServer(("127.0.0.1", int(port)), handler(version, answer)).serve_forever()


if __name__ == "__main__":
    main()
