"""A server at an address: its pages, its streams of events, and what it says where it refuses."""

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from engines.dialect import Event as Told
from utils.errors import UserError
from utils.json_text import read_json
from utils.text import first_line, quoted

KEY = "WORKBENCH_ENGINE_KEY"
_PATIENCE_S = 600.0
_MOST_BYTES = 10_000_000
_NO_PAGE = (404, 405, 501)
OPEN = WeakSet[socket.socket]()
"""Connections under way."""


class Refusal(UserError):
    """A server has answered, with a status that is none of success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Api:
    """A server at an address. key: what it asks of clients, or none."""

    url: str
    key: str = ""

    def get(self, path: str, patience_s: float = _PATIENCE_S) -> bytes:
        """The content of a page. Raises `UserError`."""
        with self._refused(path), self._answer("GET", path, patience_s=patience_s) as response:
            return response.read(_MOST_BYTES)

    def reach(self, path: str) -> None:
        """Raises `UserError` where nobody answers. A router may have no such page, and is there all the same."""
        try:
            self.get(path)
        except Refusal as refusal:
            if refusal.status not in _NO_PAGE:
                raise

    def events(self, path: str, body: Mapping[str, Any]) -> Iterator[Told]:
        """The objects of a stream of server-sent events, as they arrive. Raises `UserError`."""
        with self._refused(path):
            yield from self._events(path, body)

    @contextmanager
    def _refused(self, path: str) -> Iterator[None]:
        """What breaks off in between as a `UserError`, which names the page."""
        try:
            yield
        except UserError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UserError(f"{self.url}{path}: {first_line(error)}") from None

    def _events(self, path: str, body: Mapping[str, Any]) -> Iterator[Told]:
        until, left = time.monotonic() + _PATIENCE_S, _MOST_BYTES
        with self._answer("POST", path, json.dumps(body)) as response:
            while line := response.readline(left):
                left -= len(line)
                if left <= 0 or time.monotonic() > until:
                    raise ValueError(f"its answer has no end after {_MOST_BYTES - left:,} bytes")
                text = line.decode("utf-8").strip()
                if not text.startswith("data:"):
                    continue
                content = text.removeprefix("data:").strip()
                if content == "[DONE]":
                    return
                event = _read(content)
                if not isinstance(event, dict):
                    raise ValueError(f"an event is {quoted(event)}; expected an object")
                if "error" in event:
                    raise UserError(f"{self.url}{path}: {_message(event)}")
                yield event

    def _answer(
        self, method: str, path: str, body: str | None = None, patience_s: float = _PATIENCE_S
    ) -> http.client.HTTPResponse:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        connection = kind(parts.netloc, timeout=patience_s)
        connection.connect()
        OPEN.add(connection.sock)
        connection.request(method, parts.path.rstrip("/") + path, body, headers)
        response = connection.getresponse()
        if response.status >= 400:
            message = _refusal(response.read(_MOST_BYTES))
            hint = f"; {KEY} in the environment is the key that is sent" if response.status in (401, 403) else ""
            raise Refusal(f"{self.url}{path}: status {response.status}: {message}{hint}", response.status)
        return response


def _read(content: str) -> Any:
    """The value of an event's JSON. Raises `ValueError`."""
    try:
        return read_json(content)
    except UserError as error:
        raise ValueError(str(error)) from None


def _refusal(content: bytes) -> str:
    """What a server says why it refused, in a line."""
    try:
        return _message(json.loads(content))
    except ValueError:
        return first_line(ValueError(content.decode("utf-8", "replace")))


def _message(content: Any) -> str:
    error = content.get("error", content) if isinstance(content, dict) else content
    message = error.get("message", error) if isinstance(error, dict) else error
    return first_line(ValueError(str(message)))
