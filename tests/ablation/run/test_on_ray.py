"""A plan on a Ray cluster of two nodes on this machine: the rows of an ordinary run, whatever dies meanwhile."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

from ablation.commands.ablate import ablate
from ablation.results.manifest import manifest_path, read, write
from ablation.results.store import count_rows
from ablation.results.table import key
from ablation.results.traces.trace import trace_path
from ablation.run.on_ray.cluster import set_up
from tests.ablation.conftest import Invoke, write_lines
from tests.ablation.playing import rows
from tests.tiny import llama, save_checkpoint

set_up(os.environ, "local")  # Ray reads it when it is imported
pytest.importorskip("ray", reason="Ray is an extra: uv sync --extra ray")
import ray  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

# A cluster starts dozens of processes, each of which imports torch: minutes where the machine is busy.
pytestmark = pytest.mark.timeout(1200)

TIMED = ("host", "started", "cpu_mhz", "other_cores", "peak_memory_mb", "speedup", "c", "throughput_tps")
TIMED += ("joules_per_token", "idle_watts", "threads_blocked")
TIMED_ENDS = ("_s", "_ms", "_tps", "roofline_share", "tokens_per_s", "break_even_tokens", "break_even_alpha")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    settings = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    cluster.add_node(num_cpus=1)
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """A plan of four prompts, the last of which is longer than the window."""
    folder = tmp_path_factory.mktemp("models")
    target, drafter = (save_checkpoint(folder / name, llama(), seed=seed) for seed, name in enumerate(("t", "d")))
    prompts = write_lines(folder / "p.jsonl", *({"id": text[:2], "prompt": text} for text in ("ab", "cdcd", "ef" * 9)))
    with prompts.open("a") as file:
        file.write(json.dumps({"id": "long", "prompt": "x" * 300}) + "\n")
    models = ("--target", target, "--drafter", drafter, "--methods", "speculative,prompt_lookup")
    return ("--prompts", prompts, "--length", 40, "--dtype", "float32", "--kernel", "packed", *models)


@pytest.fixture
def call() -> Invoke:
    app = typer.Typer()
    app.command()(ablate)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def lasting(path: Path) -> list[dict[str, str]]:
    """The rows without what is timed, in the order of the file."""
    return [
        {name: cell for name, cell in row.items() if name not in TIMED and not name.endswith(TIMED_ENDS)}
        for row in rows(path)
    ]


def rounds(path: Path) -> list[str]:
    """The trace without what is timed: the ids of every round."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in trace_path(path).read_text().splitlines()]
    return sorted(json.dumps({k: v for k, v in line.items() if not k.endswith("_ms")}) for line in lines)


def in_mid_run(out: Path, least: int, act: Callable[[], None]) -> threading.Thread:
    """Act once there are so many rows."""

    def watch() -> None:
        end = time.monotonic() + 120
        while count_rows(out) < least and time.monotonic() < end:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def kill_a_player() -> None:
    found = (one for one in psutil.Process().children(recursive=True) if "ray::RayWorker" in " ".join(one.cmdline()))
    next(found).kill()


def on_another_machine(manifest: Path) -> str:
    """As if the rows that are there came from another machine of this name."""
    about = read(manifest)
    host = next(iter(about["hosts"]))
    about["hosts"][host] = {"cpu": "another", "threads": 64}
    write(manifest, about)
    return str(host)


def test_batches_and_formats_are_played_as_in_an_ordinary_run(
    call: Invoke, address: str, asked: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("on_ray.conduct", "conduct"):
        monkeypatch.setattr(f"ablation.run.{where}.conclude", lambda *files: None)
    several = (*asked, "--batch", "1,2", "--target-weights", "full,int8", "--seeds", 2, "--limit", 3)
    played = call(*several, "--out", tmp_path / "r.csv", "--ray", address)
    assert played.exit_code == 0 and "2 devices after " in played.stderr, played.output
    assert call(*several, "--out", tmp_path / "o.csv").exit_code == 0
    assert lasting(tmp_path / "r.csv") == lasting(tmp_path / "o.csv") and len(rows(tmp_path / "r.csv")) == 96
    about, ordinary = (read(manifest_path(tmp_path / name)) for name in ("r.csv", "o.csv"))
    assert about["fixed"] == ordinary["fixed"] and about["quality"].keys() == ordinary["quality"].keys()
    assert {row["host"] for row in rows(tmp_path / "r.csv")} == set(about["hosts"])
    alone = call(*several, "--out", tmp_path / "r.csv", "--resume")
    assert alone.exit_code == 0 and "96 of 96 rows are already there" in alone.stderr, alone.output
    refused = call(*several, "--out", tmp_path / "o.csv", "--resume", "--ray", address)
    assert refused.exit_code == 2 and "go on without --ray" in refused.stderr, refused.output


def test_what_dies_is_played_again_and_what_was_stopped_goes_on_elsewhere(
    call: Invoke, address: str, asked: tuple[object, ...], tmp_path: Path
) -> None:
    out = tmp_path / "r.csv"
    several = (*asked, "--seeds", 5, "--trace")
    dies = in_mid_run(out, 4, kill_a_player)
    stops = in_mid_run(out, 28, lambda: os.kill(os.getpid(), signal.SIGINT))
    stopped = call(*several, "--out", out, "--ray", address)
    dies.join()
    stops.join()
    assert stopped.exit_code == 130, stopped.output
    assert "died" in stopped.stderr and "it will be played again" in stopped.stderr
    there = {key(row): row for row in rows(out)}
    assert 28 <= len(there) < 80 and len(there) == len(rows(out)) and len(there) % 4 == 0
    host = on_another_machine(manifest_path(out))
    again = call(*several, "--out", out, "--ray", address, "--resume")
    assert again.exit_code == 1, again.output
    assert all(there.get(key(row), row) == row for row in rows(out))
    assert {row["id"] for row in rows(out) if row["error"]} == {"long"}
    assert call(*several, "--out", tmp_path / "o.csv").exit_code == 1
    assert lasting(out) == lasting(tmp_path / "o.csv") and rounds(out) == rounds(tmp_path / "o.csv")
    assert list(read(manifest_path(out))["hosts"]) == [host, f"{host} (2)"] and not ray.is_initialized()
    assert "## Hosts" in (tmp_path / "r.report" / "report.md").read_text(encoding="utf-8")


def test_players_of_other_code_are_refused(
    call: Invoke, address: str, asked: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablation.run.on_ray.worker_pool.about_code", lambda: {"code": "other", "versions": {}})
    refused = call(*asked, "--out", tmp_path / "r.csv", "--ray", address)
    assert refused.exit_code == 2 and "runs other code than this machine" in refused.stderr, refused.output
    assert 'code: "other" here' in refused.stderr and not list(tmp_path.iterdir())


def test_what_cannot_be_played_is_refused(call: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--prompt", "a", "--seeds", 2, "--methods", "prompt_lookup", "--out", tmp_path / "r.csv")
    nowhere = call(*asked, "--ray", "localhost:x")
    assert nowhere.exit_code == 2 and "--ray localhost:x given" in nowhere.stderr, nowhere.output
    monkeypatch.setitem(sys.modules, "ray", None)
    without = call(*asked, "--ray", "local")
    assert without.exit_code == 2 and "uv sync --extra ray" in without.stderr
    for more, says in (
        (("--shard", "1/2"), "drop --shard"),
        (("--workers", 2, "--devices", "cpu:0"), "drop --workers"),
    ):
        refused = call(*asked, "--ray", "local", *more)
        assert refused.exit_code == 2 and says in refused.stderr, refused.output
    assert not list(tmp_path.iterdir())
