"""How several processes end: together, whatever ends the first one; and soon, where one is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiny
from tests.sharded.processes import ROOT, ended, start

SOON_S = 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_checkpoint(tmp_path_factory.mktemp("model"), tiny.llama(max_position_embeddings=4096))


def call(model: Path, *words: str) -> list[str]:
    options = ["--device", "cpu", "--dtype", "float32", "--prompt", "hello there"]
    return ["infer.py", "run", "--target", str(model), *options, *words]


def under_way(model: Path, trace: Path) -> list["subprocess.Popen[str]"]:
    """Two processes in the middle of a long answer."""
    processes = start(call(model, "--methods", "target", "--length", "3000", "--trace", str(trace)))
    until = time.monotonic() + 60
    while not (trace.is_file() and trace.stat().st_size):
        assert time.monotonic() < until and all(one.poll() is None for one in processes)
        time.sleep(0.1)
    return processes


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other_with_a_line(model: Path, tmp_path: Path, killed: int) -> None:
    processes = under_way(model, tmp_path / "trace.jsonl")
    processes[killed].kill()
    began = time.monotonic()
    other = ended(processes, SOON_S)[1 - killed]
    assert time.monotonic() - began < SOON_S
    assert other.status == 1
    assert "Traceback" not in other.err
    last = other.err.splitlines()[-1]
    assert last.startswith(f"error: process {1 - killed} of 2 cannot go on without the others: ")


def test_ctrl_c_ends_both(model: Path, tmp_path: Path) -> None:
    """A terminal sends it to both; the second one does not wait for the answer's end."""
    processes = under_way(model, tmp_path / "trace.jsonl")
    for _ in range(2):
        for process in processes:
            process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    first, other = ended(processes, SOON_S)
    assert first.status == 130
    assert first.err.splitlines()[-1] == "stopped"
    assert (other.status, other.out, other.err) == (0, "", "")


def test_a_wrong_call_is_said_once(model: Path) -> None:
    first, other = ended(start(call(model, "--methods", "nothing")))
    assert first.status == 2
    assert "unknown method" in first.err
    assert (other.status, other.out, other.err) == (0, "", "")


def test_torchrun_starts_it(model: Path) -> None:
    words = call(model, "--methods", "target,prompt_lookup", "--length", "8", "--json")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(torchrun, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["method"] for line in lines] == ["target", "prompt_lookup"]
    assert lines[0]["output_ids"] == lines[1]["output_ids"]
    assert lines[0]["roofline_share"] is None
