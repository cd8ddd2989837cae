"""Shards on devices of one machine: each bound before it imports torch, none left behind, merged at the end."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from ablation.plan.grid import Plan
from ablation.results.store import count_rows
from ablation.run.shared_choices import VARIABLE
from ablation.run.workers import Device, play_workers, read_devices
from tests.ablation.conftest import Invoke
from tests.ablation.mock_engine import mock_plan
from tests.ablation.playing import rows
from tests.forked import python
from tests.refusals import refused
from tests.tiny import llama, save_checkpoint
from tests.waiting import PATIENCE_S, until
from utils.provenance import ROOT

needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to bind to"
)
TELLS = """
import json, os, sys
about = {"cores": sorted(os.sched_getaffinity(0)), "gpus": os.environ["CUDA_VISIBLE_DEVICES"], "words": sys.argv[1:]}
print(json.dumps(about), flush=True)
sys.exit(int(sys.argv[2][0]) - 1)
"""


def two_cores() -> tuple[int, int]:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    return first, second


def quiet() -> Console:
    return Console(file=StringIO())


@pytest.mark.parametrize(
    "text", ["", "cpu", "cuda", "cpu:", "cpu:3-1", "cuda:0-1", "cuda:x", "mps:0", "cuda:-1", "cpu:0,,"]
)
def test_what_is_no_device_is_refused(text: str) -> None:
    first_wrong = next(part for part in text.split(",") if part != "cpu:0")
    with refused("--devices", repr(first_wrong), "cuda:0,cuda:1", "cpu:0-3,cpu:4-7"):
        read_devices(text)


@pytest.mark.parametrize("text", ["cuda:0,cuda:0", "cpu:0,cpu:0"])
def test_two_timed_workers_share_nothing(text: str) -> None:
    with refused("--devices", repr(text), "twice"):
        read_devices(text)


def test_a_gpu_is_bound_by_what_torch_reads_when_it_is_imported() -> None:
    assert [one.environment() for one in read_devices("cuda:1, cuda:0")] == [
        {"CUDA_VISIBLE_DEVICES": "1"},
        {"CUDA_VISIBLE_DEVICES": "0"},
    ]


@needs_cores
def test_each_worker_has_its_cores_and_its_status(tmp_path: Path) -> None:
    first, second = two_cores()
    devices = read_devices(f"cpu:{first},cpu:{second}")
    plan: Plan = mock_plan()
    found = play_workers(plan, tmp_path / "r.csv", devices, ["-c", TELLS], quiet())
    told = [json.loads(one.log.read_text()) for one in found]
    assert [one["cores"] for one in told] == [[first], [second]] and {one["gpus"] for one in told} == {""}
    assert [one["words"] for one in told] == [["--shard", "1/2"], ["--shard", "2/2"]]
    assert [one.status for one in found] == [0, 1]
    assert [one.results.name for one in found] == ["r.1-of-2.csv", "r.2-of-2.csv"]
    assert sum(one.generations for one in found) == plan.generations


@needs_cores
def test_none_waits_for_a_first_one_that_has_ended(tmp_path: Path) -> None:
    waits = (
        "import os, sys, time\nwhile sys.argv[2] != '1/2' and not os.path.exists(os.environ['"
        f"{VARIABLE}']):\n    time.sleep(0.1)\nsys.exit(2 if sys.argv[2] == '1/2' else 0)"
    )
    first, second = two_cores()
    found = play_workers(
        mock_plan(), tmp_path / "r.csv", read_devices(f"cpu:{first},cpu:{second}"), ["-c", waits], quiet()
    )
    assert [one.status for one in found] == [2, 0]


@needs_cores
def test_none_is_left_behind(tmp_path: Path) -> None:
    sleeps = "import time, pathlib, os, sys; pathlib.Path(sys.argv[2][0]).write_text(str(os.getpid())); time.sleep(600)"
    first, second = two_cores()
    program = (
        "from pathlib import Path\nfrom rich.console import Console\nfrom ablation.run.workers import *\n"
        "from tests.ablation.mock_engine import mock_plan\n"
        f"devices = read_devices('cpu:{first},cpu:{second}')\n"
        f"play_workers(mock_plan(), Path('r.csv'), devices, ['-c', {sleeps!r}], Console())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([python(), "-c", program], cwd=tmp_path, env=environment) as parent:
        until(lambda: all((tmp_path / name).is_file() and (tmp_path / name).read_text() for name in "12"))
        workers = [psutil.Process(int((tmp_path / name).read_text())) for name in "12"]
        for _ in range(2):  # the first asks; these two hear nothing, as they are no terminal's
            parent.send_signal(signal.SIGINT)
            time.sleep(1.5)
        parent.wait(PATIENCE_S)
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in workers)


def worker_of(folder: Path, shard: str) -> psutil.Process:
    """The worker that plays the shard in this folder."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if shard in process.cmdline() and process.cwd() == str(folder):
                return process
    raise AssertionError("no such worker")


@needs_cores
def test_a_worker_that_is_killed_is_told_and_resumed_and_merged(tmp_path: Path) -> None:
    target, drafter = (save_checkpoint(tmp_path / name, llama(max_position_embeddings=4096)) for name in ("t", "d"))
    first, second = two_cores()
    command = [
        *(
            python(),
            str(ROOT / "scripts" / "run_ablation.py"),
            "--prompts",
            "code",
            "--limit",
            "2",
            "--length",
            "60",
        ),
        *("--methods", "prompt_lookup", "--target", str(target), "--drafter", str(drafter), "--out", "r.csv"),
        *("--dtype", "float32"),  # what auto takes may change from start to start
        *("--devices", f"cpu:{first},cpu:{second}", "--seeds", "2"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as parent:
        until(lambda: count_rows(tmp_path / "r.2-of-2.csv") or parent.poll() is not None)
        worker_of(tmp_path, "2/2").kill()
        assert parent.stderr
        said = parent.stderr.read()
    assert (
        parent.returncode == 1 and "worker 2/2 was ended by SIGKILL (status -9)" in said and "--resume goes on" in said
    ), said
    assert not (tmp_path / "r.csv").exists() and count_rows(tmp_path / "r.1-of-2.csv") == 6
    again = subprocess.run([*command, "--resume"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert len(rows(tmp_path / "r.csv")) == 12 and (tmp_path / "r.report" / "index.html").is_file()


def test_workers_are_refused_before_anything_is_played(call: Invoke, tmp_path: Path) -> None:
    asked = ("--prompt", "a", "--seeds", 2, "--methods", "prompt_lookup", "--out", tmp_path / "r.csv")
    for more, says in (
        (("--workers", 99), "this machine has"),
        (("--devices", "cpu:0,cpu:0"), "share it"),
        (("--devices", "cuda:0", "--workers", 2), "a device for each worker"),
        (("--devices", "cuda:0", "--shard", "1/2"), "expected one of them"),
    ):
        refused = call(*asked, *more)
        assert refused.exit_code == 2 and says in refused.stderr, refused.stderr
    assert not list(tmp_path.iterdir())


def test_a_device_has_a_name() -> None:
    assert replace(Device.parse("cpu:0-2"), text="") == Device("", cores=(0, 1, 2))
