"""One process reads prompts, another decodes: states over a socket.

A message is the length of what follows, eight bytes, and that many bytes: a request in JSON; for an answer what is to
be said of it, in JSON, and the tensors (safetensors). Nothing that is sent is ever run.
"""

import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load, save

from sampling.handover import Handover
from sampling.pair.pair import Pair
from sampling.prefilled.packed import PrefillMaker, packed, seconds_in, unpacked
from sampling.prefilled.reading import read_apart
from utils.errors import UserError, wrong_value
from utils.json_text import read_json
from utils.text import first_line, shown
from utils.token_ids import known, token_ids

_LENGTH = 8
_MOST_WORDS, _MOST_TENSORS = 1 << 24, 1 << 40
_CONNECT_S, _PATIENCE_S = 10.0, 600.0
_Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Address:
    """Where prompts are read."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, what: str) -> "Address | None":
        """`HOST:PORT`, or `:PORT` of this machine; None for what is none. Raises `UserError` for a port that is none.

        Example: "127.0.0.1:7070", "[::1]:7070".
        """
        host, colon, port = text.rpartition(":")
        if not (colon and port.isascii() and port.isdigit()) or "/" in host:
            return None
        if int(port) > 65535:
            raise wrong_value(what, text, "HOST:PORT with a port up to 65535")
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    @property
    def text(self) -> str:
        """As it is written."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AskedPrefills:
    """Asks who reads prompts at an address, for each generation: see `Prefills`."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def refuse_other(self, pair: Pair) -> None:
        """Raises `UserError` where nobody is there, or one with another target."""
        self._ask(pair, {})

    def check(self, prompt: Sequence[int], layers: Sequence[int]) -> None:
        """Any prompt can be read there, with any states."""

    def find(self, pair: Pair, prompt: Sequence[int], layers: Sequence[int]) -> Handover:
        """See `Prefills.find`. Handing over is all of the time but that of the other's forwards."""
        begun = time.perf_counter()
        about, content = self._ask(pair, {"prompt": list(prompt), "layers": list(layers)})
        try:
            state = unpacked(load(content), self.address.text)
            whole = time.perf_counter() - begun
            read = seconds_in(about.get("prefill_s"), self.address.text, whole)
            queued = seconds_in(about.get("queued_s"), self.address.text, whole - read)
        except (SafetensorError, TypeError, ValueError) as error:
            raise UserError(f"{self.address.text} sent what is no prefilled state: {first_line(error)}") from None
        return Handover(state, read, transfer_s=whole - read - queued, queued_s=queued)

    def _ask(self, pair: Pair, message: _Message) -> tuple[_Message, bytes]:
        """The answer. Raises `UserError`, also where another target would read the prompt."""
        where, here = self.address.text, PrefillMaker.of(pair)
        message = {**message, "maker": here.as_dict()}
        try:
            with socket.create_connection((self.address.host, self.address.port), _CONNECT_S) as connection:
                connection.settimeout(_PATIENCE_S)
                _send(connection, json.dumps(message).encode())
                about = _object(_receive(connection, _MOST_WORDS))
                if "maker" in about:
                    PrefillMaker.from_dict(_part(about, "maker", dict), where).refuse_other(here, f"what {where} reads")
                if "error" in about:
                    raise UserError(f"{where}: {first_line(ValueError(str(about['error'])))}")
                return about, _receive(connection, _MOST_TENSORS)
        except UserError:
            raise
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or first_line(error)
            raise UserError(f"{where}: {why}; expected `infer.py prefill --listen` there") from None


class PrefillServer(socketserver.ThreadingTCPServer):
    """Reads prompts for who asks, one at a time, with the target of a pair. Enter it, then `serve_forever`.

    told: called with a line for people for each prompt that was read, and for what was refused.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, address: Address, say: Callable[[str], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.told, self._turn = say, threading.Lock()
        self.pair: Pair | None = None
        try:
            super().__init__((address.host, address.port), _Answering)
        except (OSError, OverflowError) as error:
            raise UserError(f"--listen {address.text}: {getattr(error, 'strerror', None) or error}") from None
        self.address = Address(address.host, self.server_address[1])

    def answer(self, asked: _Message) -> tuple[dict[str, Any], bytes]:
        """What is sent for a request. Raises `UserError`."""
        assert self.pair is not None, "the models are loaded before it serves"
        here, asks = PrefillMaker.of(self.pair), PrefillMaker.from_dict(_part(asked, "maker", dict), "maker")
        if not asks.fits(here):
            self.told(f"refused: {shown(asks.text)} is asked for")
        if "prompt" not in asked or not asks.fits(here):
            return {"maker": here.as_dict()}, b""
        prompt = known("prompt", token_ids("prompt", asked["prompt"]), self.pair.target.vocab_size)
        layers = token_ids("layers", _part(asked, "layers", list))
        if wrong := [layer for layer in layers if not 0 <= layer <= self.pair.target.model.num_layers]:
            raise wrong_value("layers", wrong[0], f"0 to {self.pair.target.model.num_layers}")
        begun = time.perf_counter()
        with self._turn:
            queued_s = time.perf_counter() - begun
            handover = read_apart(self.pair.target, prompt, sorted(set(layers)))
        content = save(packed(handover.state))
        took, size = f"{handover.prefill_s * 1e3:,.1f} ms", f"{len(content) / 1e6:,.1f} MB"
        self.told(f"{len(prompt):,} tokens in {took}, {size} sent")
        return {"prefill_s": handover.prefill_s, "queued_s": queued_s}, content

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or said nothing sensible, is no concern of the others."""


class _Answering(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        connection, server = cast(socket.socket, self.request), cast(PrefillServer, self.server)
        connection.settimeout(_PATIENCE_S)
        try:
            about, content = server.answer(_object(_receive(connection, _MOST_WORDS)))
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            said = first_line(error)
            server.told(f"refused: {shown(said)}")
            _send(connection, json.dumps({"error": said}).encode())
            return
        _send(connection, json.dumps(about).encode())
        _send(connection, content)


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(len(content).to_bytes(_LENGTH, "big"))
    connection.sendall(content)


def _receive(connection: socket.socket, most: int) -> bytes:
    """The next message. Raises `ValueError` for one of more bytes, `OSError` where the other has left."""
    length = int.from_bytes(_exactly(connection, _LENGTH), "big")
    if length > most:
        raise ValueError(f"a message of {length:,} bytes; expected at most {most:,}")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        part = connection.recv(min(count - len(content), 1 << 20))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        content += part
    return bytes(content)


def _object(content: bytes) -> _Message:
    """The object of a message. Raises `ValueError`."""
    try:
        body = read_json(content.decode("utf-8"))
    except UserError as error:  # of this side's words it says nothing
        raise ValueError(str(error)) from None
    if not isinstance(body, dict):
        raise ValueError("a message is no JSON object")
    return body


def _part(asked: _Message, name: str, kind: type) -> Any:
    if not isinstance(asked.get(name), kind):
        raise wrong_value(name, asked.get(name), f"a {kind.__name__}")
    return asked[name]
