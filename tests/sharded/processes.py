"""Two processes that torchrun would have started, without it: each ends by itself, or not at all."""

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.forked import python
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """How a process ended."""

    status: int
    out: str
    err: str


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun tells a process."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in place.items()}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start(words: Sequence[str], size: int = 2, more: Mapping[str, str] | None = None) -> list[subprocess.Popen[str]]:
    """The same program in so many processes."""
    port = free_port()
    common = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **(more or {})}
    return [
        subprocess.Popen(
            [python(), *words],
            cwd=ROOT,
            env={**common, **environment(rank, size, port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(size)
    ]


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[Ended]:
    """How each ended; those that do not are killed, and the test fails."""
    try:
        said = [process.communicate(timeout=PATIENCE_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Ended(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]
