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
    """Starts a server for each `speculative_config`, one at a time: each has the machine to itself.

    launch: the command line, in which {model}, {port} and {options} stand for what they say; it is run without a shell.
    Use it as a context, at whose end nothing runs any longer.
    """

    def __init__(self, launch: str, dialect: Dialect, model: str, start_s: float = START_S) -> None:
        self.words, self.dialect, self.model, self.start_s = read_launch(launch), dialect, model, start_s
        self._running: tuple[str, Api] | None = None
        self._failed: dict[str, str] = {}
        self._lock = threading.Lock()
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def api_of(self, config: Mapping[str, Any]) -> Api:
        """A server that speculates so, which runs until another is asked for. Raises `UserError`.

        One that could not be started is not tried again.
        """
        options = self.dialect.options(config)
        key = json.dumps(options)
        with self._lock:  # several threads may find that it has died
            if key in self._failed:
                raise UserError(self._failed[key])
            if self._running is None or self._running[0] != key or not self._alive():
                self.close()
                try:
                    self._running = key, self._start(options)
                except UserError as error:
                    self._failed[key] = str(error)
                    raise
            return self._running[1]

    def close(self, keep_log: bool = False) -> None:
        """End what runs."""
        guard, self._guard, self._running = self._guard, None, None
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            guard.wait()
        if self._log is not None:
            self._log.close()
            if not keep_log:
                Path(self._log.name).unlink(missing_ok=True)
            self._log = None

    def _start(self, options: Sequence[str]) -> Api:
        port = _free_port()
        words = expanded(self.words, self.model, port, options)
        self._log = tempfile.NamedTemporaryFile(prefix="engine-", suffix=".log", delete=False)  # noqa: SIM115
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        self._guard = subprocess.Popen(
            [sys.executable, str(ROOT / "engines" / "server" / "guard.py"), *words],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        api = Api(f"http://127.0.0.1:{port}")
        end = time.monotonic() + self.start_s
        while not self._healthy(api):
            if not self._alive() or time.monotonic() > end:
                status = None if self._guard is None else self._guard.poll()
                why = f"was not ready after {self.start_s:g} s" if status is None else f"ended with status {status}"
                reason = f"{why}; it said last: {self._said()}; all that it said: {self._log.name}"
                self.close(keep_log=True)
                raise UserError(f"the server {reason}; started with: {shlex.join(words)}")
            time.sleep(_LOOKS_S)
        return api

    def _alive(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    def _healthy(self, api: Api) -> bool:
        try:
            api.get(self.dialect.health, _HEALTH_S)
        except UserError:
            return False
        return True

    def _said(self) -> str:
        """The last lines of its output."""
        assert self._log is not None
        with Path(self._log.name).open(encoding="utf-8", errors="replace") as file:
            return " / ".join(line.strip() for line in deque(file, _SHOWN_LINES)) or "nothing"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
