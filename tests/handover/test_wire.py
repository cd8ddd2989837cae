"""One who reads prompts and one who decodes, over a real socket; and what comes over sockets that is not meant so."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.prefilled.reading import read_apart
from sampling.prefilled.wire import Address, AskedPrefills, PrefillServer
from tests.handover.test_files import PROMPT, equal
from tests.handover.test_states import told
from tests.refusals import refused
from tests.tiny import tiny_pair

HERE = Address("127.0.0.1", 0)


@contextmanager
def serving(pair: Pair) -> Iterator[tuple[AskedPrefills, list[str]]]:
    """Another process's part, in a thread; what it says it has read."""
    said: list[str] = []
    with PrefillServer(HERE, said.append) as server:
        server.pair = pair
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield AskedPrefills(server.address), said
        finally:
            server.shutdown()
            thread.join()


def test_a_state_crosses_a_socket_to_the_bit() -> None:
    with serving(tiny_pair()) as (asked, said):
        pair = tiny_pair()
        asked.refuse_other(pair)
        found = asked.find(pair, PROMPT, (3, 1))
        assert equal(found, read_apart(pair.target, PROMPT, (1, 3)))
        assert found.transfer_s > 0 and not found.shared
        assert said == [f"8 tokens in {found.prefill_s * 1e3:,.1f} ms, 0.0 MB sent"]


@pytest.mark.parametrize("method", ["target", "speculative", "prompt_lookup", "egag"])
def test_decoding_goes_on_as_if_it_had_read_the_prompt(method: str) -> None:
    values = Settings()
    values.assign_all([("length", "20"), ("processor", "nucleus 0.8 0.9")])
    with serving(tiny_pair()) as (asked, _):
        own, apart = (PairEngine(tiny_pair()) for _ in range(2))
        apart.prefills = asked
        _, expected = told(own, method, values, PROMPT)
        begun, found = told(apart, method, values, PROMPT)
        assert found == expected
        assert begun.handed and begun.transfer_s > 0


def test_many_ask_at_once() -> None:
    prompts = [[*PROMPT, number] * 3 for number in range(12)]
    with serving(tiny_pair()) as (asked, said), ThreadPoolExecutor(6) as threads:
        pair = tiny_pair()
        found = list(threads.map(lambda prompt: asked.find(pair, prompt, ()), prompts))
        for prompt, one in zip(prompts, found, strict=True):
            assert equal(one, read_apart(pair.target, prompt, ()))
        assert len(said) == 12


def test_what_cannot_be_read_is_told_and_others_go_on() -> None:
    with serving(tiny_pair()) as (asked, said):
        pair = tiny_pair()
        for prompt, layers, quoted in (
            ([], (), ("prompt",)),
            ([10_000], (), ("prompt", 10_000, 260)),
            ([1] * 600, (), ("prompt", 600, 512)),
            ([1, 2], (9,), ("layers", 9, 3)),
        ):
            with refused(asked.address.text, *quoted):
                asked.find(pair, prompt, layers)
        with refused(asked.address.text, "tiny", "weights"):
            asked.refuse_other(tiny_pair(seed=1))
        other = replace(pair, target_info=replace(pair.target_info, dtype="bfloat16"))
        with refused(asked.address.text, "tiny", "bfloat16", "--dtype float32"):
            asked.find(other, PROMPT, ())
        assert said[-2:] == ["refused: tiny in float32 is asked for", "refused: tiny in bfloat16 is asked for"]
        named = replace(pair, target_info=replace(pair.target_info, name="the same by another name"))
        assert asked.find(named, PROMPT, ()).state.tokens == tuple(PROMPT[:-1])
        assert asked.find(pair, PROMPT, ()).state.tokens == tuple(PROMPT[:-1])


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, (5).to_bytes(8, "big") + b"[1,2]"])
def test_a_client_that_says_something_else_disturbs_nobody(sent: bytes) -> None:
    with serving(tiny_pair()) as (asked, _):
        address = asked.address.host, asked.address.port
        with socket.create_connection(address) as other, suppress(OSError):  # who may have heard enough
            other.sendall(sent)
            other.shutdown(socket.SHUT_WR)
            assert len(other.recv(1000)) < 1000
        assert asked.find(tiny_pair(), PROMPT, ()).prefill_s > 0


@pytest.mark.parametrize(
    ("sent", "quoted"),
    [
        (b"", "infer.py prefill --listen"),
        ((1 << 40).to_bytes(8, "big"), f"{1 << 40:,}"),
        ((2).to_bytes(8, "big") + b"{}", "infer.py prefill --listen"),
        ((2).to_bytes(8, "big") + b"{}" + (3).to_bytes(8, "big") + b"abc", "prefilled state"),
        ((4).to_bytes(8, "big") + b"[1]x", "JSON"),
    ],
)
def test_somebody_else_at_the_address_is_told(sent: bytes, quoted: str) -> None:
    with socket.create_server((HERE.host, HERE.port)) as listener:
        address = Address(HERE.host, listener.getsockname()[1])

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # who may have heard enough
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(10_000):  # closed with something unread, it would be a reset
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        with refused(address.text, quoted):
            AskedPrefills(address).find(tiny_pair(), PROMPT, ())
        thread.join()


def test_nobody_at_the_address_is_told() -> None:
    with socket.create_server((HERE.host, 0)) as listener:
        port = listener.getsockname()[1]
    address = Address(HERE.host, port)
    with refused(address.text, os.strerror(errno.ECONNREFUSED)):
        AskedPrefills(address).refuse_other(tiny_pair())


def test_addresses() -> None:
    assert Address.parse(":7070", "--from") == Address("127.0.0.1", 7070)
    assert Address.parse("[::1]:1", "--from") == Address("::1", 1) and Address("::1", 1).text == "[::1]:1"
    for text in ("states", "a/b:1", "C:\\states", "x.safetensors", "host:"):
        assert Address.parse(text, "--from") is None
    with refused("--from", "'a:70000'", "HOST:PORT", 65535):
        Address.parse("a:70000", "--from")


def test_an_address_that_is_taken_is_refused() -> None:
    with socket.create_server((HERE.host, 0)) as listener:
        taken = Address(HERE.host, listener.getsockname()[1])
        with refused("--listen", taken.text, os.strerror(errno.EADDRINUSE)):
            PrefillServer(taken, print)
