"""A server in the dialect of vLLM that says the same four tokens, for launching; it starts a child that sleeps."""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Healthy at once; each answer is two rounds."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        for ids, reason in (([5], None), ([6, 7, 8], "length")):
            choice = {"text": "x", "token_ids": ids, "finish_reason": reason}
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    port, pids, *options = sys.argv[1:]
    if "die" in options:
        print("no weights found", file=sys.stderr)
        sys.exit(3)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with Path(pids).open("a", encoding="utf-8") as file:
        file.write(f"{child.pid}\n")
    HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
