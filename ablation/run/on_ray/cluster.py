"""Joining a Ray cluster or starting one here, and the devices that it has. Ray is an extra, and imported only here."""

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from utils.device.waiting.setting import VARIABLE
from utils.errors import UserError
from utils.text import counted, first_line

LOCAL, AUTO = "local", "auto"
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Else Ray copies the project and gives every actor an environment of its own when `uv run` started us.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_PATIENCE_S = 5.0
_STORE_BYTES = 100 * 2**20  # for rows: Ray would take a third of the memory
_AUTH = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
_EXPECTED = (
    "local, which starts Ray on this machine, auto where a cluster runs here or RAY_ADDRESS names one, or the "
    "HOST:PORT of one"
)
_THREADS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", VARIABLE)


@dataclass(frozen=True, slots=True)
class ClusterDevice:
    """What one player has to itself: a GPU of a node, or all its cores."""

    node: str
    name: str
    cores: float = 0.0
    gpus: int = 0

    @property
    def text(self) -> str:
        """For people: `a GPU of node7`, `node7`."""
        return f"a GPU of {self.name}" if self.gpus else self.name

    def options(self, ray: Any) -> dict[str, Any]:
        """What Ray is asked for: this node, and nothing of the cluster's beside what is timed there."""
        pinned = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(self.node, soft=False)
        return {"num_cpus": self.cores, "num_gpus": self.gpus, "scheduling_strategy": pinned, "max_restarts": 0}

    def environment(self) -> dict[str, str | None]:
        """Variables of the player's process before it imports torch; None: not set, whatever Ray has set.

        Threads are as many as OMP_NUM_THREADS says here, else as torch finds cores there.
        """
        threads: dict[str, str | None] = {name: os.environ.get(name) for name in _THREADS}
        return threads if self.gpus else {**threads, "CUDA_VISIBLE_DEVICES": ""}


def set_up(environment: MutableMapping[str, str], address: str) -> None:
    """Ray without reports to its makers, copies of the project and warnings; it reads this when it is imported."""
    environment.update(_QUIET)
    if address == LOCAL and not any(name in environment for name in _AUTH):
        # Its ports are open to the network: only who knows this run's token may use them. Ray would keep it in a file.
        environment.update(zip(_AUTH, ("token", secrets.token_hex(32)), strict=True))


def import_ray(address: str) -> Any:
    """Ray, for `joined`. Raises `UserError` where it is not installed."""
    set_up(os.environ, address)
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise UserError("--ray given, and Ray is not installed: uv sync --extra ray adds it") from None
    return ray


@contextmanager
def joined(ray: Any, address: str) -> Iterator[tuple[ClusterDevice, ...]]:
    """The devices of a cluster, whose actors end with this context, as a cluster does that it has started.

    address: `local` starts one on this machine, `auto` finds the one that runs here or that RAY_ADDRESS names, else
    what `ray.init` takes. Raises `UserError`.
    """
    _refuse_silent(os.environ.get("RAY_ADDRESS", address) if address == AUTO else address)
    # Ray gives workers a low priority (nice 15): beside any other process they would time how little it leaves them.
    own = {"include_dashboard": False, "object_store_memory": _STORE_BYTES, "_system_config": {"worker_niceness": 0}}
    options: dict[str, Any] = own if address == LOCAL else {}
    try:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except ConnectionError:
            raise UserError(f"--ray {address} given, and no cluster was found; expected {_EXPECTED}") from None
        except (OSError, ValueError, RuntimeError, ImportError, ray.exceptions.RayError) as error:
            raise UserError(f"--ray {address} given: {first_line(error)}; expected {_EXPECTED}") from None
        yield _places(ray.nodes())
    finally:
        ray.shutdown()


def _refuse_silent(address: str) -> None:
    """Raise `UserError` where nobody listens, for which Ray waits minutes."""
    host, colon, port = address.rpartition(":")
    if address.startswith("ray://"):
        raise UserError(f"--ray {address} given: Ray's client is not supported; expected {_EXPECTED}, on a node of it")
    if not (colon and port.isascii() and port.isdigit()):
        return  # a word, or what Ray itself refuses
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--ray {address}: no answer ({error}); expected {_EXPECTED}") from None


def _places(nodes: list[Mapping[str, Any]]) -> tuple[ClusterDevice, ...]:
    """Every GPU; where there is none, every node with cores. Raises `UserError` where there is neither."""
    alive = [node for node in nodes if node["Alive"]]
    gpus = [
        ClusterDevice(node["NodeID"], node["NodeManagerHostname"], gpus=1)
        for node in alive
        for _ in range(int(node["Resources"].get("GPU", 0)))
    ]
    cores = [
        ClusterDevice(node["NodeID"], node["NodeManagerHostname"], node["Resources"]["CPU"])
        for node in alive
        if node["Resources"].get("CPU", 0) >= 1
    ]
    if not (gpus or cores):
        raise UserError(f"--ray: {counted(len(alive), 'node')} found, without GPUs and cores; expected some to play on")
    return tuple(gpus or cores)
