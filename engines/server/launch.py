"""A server that is started for a method and ended with its whole process group, whatever happens."""

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from engines.dialect import Dialect
from engines.server.api import Api
from engines.spec import expanded, read_launch
from utils.errors import UserError
from utils.provenance import ROOT

START_S = 900.0
_LOOKS_S, _HEALTH_S = 0.2, 5.0
_SHOWN_LINES = 5


class Launcher:
    """Starts a server for each `speculative_config`.

    launch: the command line, in which {model}, {port} and {options} stand for what they say; it is run without a shell.
    at_once: whether those that were started stay; else one has the machine to itself. Use it as a context, at whose end
    nothing runs any longer.
    """

    def __init__(
        self, launch: str, dialect: Dialect, model: str, start_s: float = START_S, at_once: bool = False
    ) -> None:
        self.words, self.dialect, self.model, self.start_s = read_launch(launch), dialect, model, start_s
        self._at_once, self._running, self._failed = at_once, dict[str, _Server](), dict[str, str]()
        self._lock = threading.Lock()

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def api_of(self, config: Mapping[str, Any]) -> Api:
        """A server that speculates so, which runs until another is asked for, or to the end. Raises `UserError`.

        One that could not be started is not tried again.
        """
        options = self.dialect.options(config)
        key = json.dumps(options)
        with self._lock:  # several threads may find that it has died
            if key in self._failed:
                raise UserError(self._failed[key])
            running = self._running.get(key)
            if running is None or not running.alive():
                self._end(*([key] if self._at_once else self._running))
                try:
                    self._start(key, options)
                except UserError as error:
                    self._failed[key] = str(error)
                    raise
            return self._running[key].api

    def close(self) -> None:
        """End what runs."""
        self._end(*self._running)

    def _end(self, *keys: str) -> None:
        for key in keys:
            if (server := self._running.pop(key, None)) is not None:
                server.close()

    def _start(self, key: str, options: Sequence[str]) -> None:
        port = _free_port()
        words = expanded(self.words, self.model, port, options)
        server = self._running[key] = _Server(words, Api(f"http://127.0.0.1:{port}"))
        end = time.monotonic() + self.start_s
        while not self._healthy(server.api):
            if not server.alive() or time.monotonic() > end:
                status = server.status()
                why = f"was not ready after {self.start_s:g} s" if status is None else f"ended with status {status}"
                reason = f"{why}; it said last: {server.said()}; all that it said: {server.log.name}"
                server.close(keep_log=True)
                del self._running[key]
                raise UserError(f"the server {reason}; started with: {shlex.join(words)}")
            time.sleep(_LOOKS_S)

    def _healthy(self, api: Api) -> bool:
        try:
            api.get(self.dialect.health, _HEALTH_S)
        except UserError:
            return False
        return True


class _Server:
    """A process that was started with these words, and its guard. api: where it will answer."""

    def __init__(self, words: Sequence[str], api: Api) -> None:
        self.api = api
        self.log: IO[bytes] = tempfile.NamedTemporaryFile(prefix="engine-", suffix=".log", delete=False)  # noqa: SIM115
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        self._guard = subprocess.Popen(
            [sys.executable, str(ROOT / "engines" / "server" / "guard.py"), *words],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    def alive(self) -> bool:
        return self.status() is None

    def status(self) -> int | None:
        """With which it has ended; None while it runs."""
        return self._guard.poll()

    def said(self) -> str:
        """The last lines of its output."""
        with Path(self.log.name).open(encoding="utf-8", errors="replace") as file:
            return " / ".join(line.strip() for line in deque(file, _SHOWN_LINES)) or "nothing"

    def close(self, keep_log: bool = False) -> None:
        """End it."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        self.log.close()
        if not keep_log:
            Path(self.log.name).unlink(missing_ok=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
