"""A server on a socket of this machine, in a thread of the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from openai import OpenAI

from ablation.plan.grid import Configuration
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from serve.app import Server
from serve.command import listening, url_of
from serve.limits import ServerLimits
from serve.web import web_server


@dataclass(frozen=True)
class Running:
    """A server that answers: where, and its parts."""

    url: str
    server: Server
    key: str = "none"

    def client(self) -> OpenAI:
        """The official client, which does not try again."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, timeout=60)


@contextmanager
def running(
    pair: Pair, limits: ServerLimits | None = None, default: str = "target", port: int = 0
) -> Iterator[Running]:
    """Serve a pair until the block ends. port: 0 is any that is free."""
    server = Server(PairEngine(pair), Configuration(default), limits or ServerLimits(size=4))
    with listening("127.0.0.1", port) as listener:
        loop = web_server(server)
        thread = threading.Thread(target=loop.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Running(url_of(listener), server, (limits and limits.key) or "none")
        finally:
            loop.should_exit = True
            thread.join()
