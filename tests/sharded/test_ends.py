"""How several processes end: together, whatever ends the first one; and soon, where one is killed."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import tiny
from tests.forked import python
from tests.sharded.processes import ROOT, ended, start
from tests.waiting import PATIENCE_S, until


def under_way(out: Path) -> list["subprocess.Popen[str]"]:
    """Two processes in the middle of many forwards."""
    processes = start(["-m", "tests.sharded.answering", str(out)])
    until(lambda: out.is_file() or any(process.poll() is not None for process in processes))
    assert all(process.poll() is None for process in processes)
    return processes


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other_with_a_line(tmp_path: Path, killed: int) -> None:
    processes = under_way(tmp_path / "out")
    processes[killed].kill()
    other = ended(processes)[1 - killed]
    assert other.status == 1
    said = other.err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"error: process {1 - killed} of 2 cannot go on without the others: ")


def test_ctrl_c_ends_both(tmp_path: Path) -> None:
    """A terminal sends it to both; it waits for the end of a forward, so that the second process can still be told."""
    processes = under_way(tmp_path / "out")
    for process in processes:
        process.send_signal(signal.SIGINT)
    first, other = ended(processes)
    assert first.status == 130
    assert (other.status, other.out, other.err) == (0, "", "")


def call(*words: str) -> list[str]:
    return ["infer.py", "run", "--device", "cpu", "--dtype", "float32", "--prompt", "hello there", *words]


def test_a_wrong_call_is_said_and_ends_all() -> None:
    first, other = ended(start(call("--methods", "nothing")))
    assert first.status == 2
    assert "unknown method" in first.err
    assert (other.status, other.out) == (1, "")  # where torchrun does not end it before
    assert other.err.count("\n") == 1 and other.err.startswith("error: process 1 of 2: unknown method")


def test_torchrun_starts_it(tmp_path: Path) -> None:
    model = tiny.save_checkpoint(tmp_path / "model", tiny.llama())
    words = call("--target", str(model), "--methods", "target,prompt_lookup", "--length", "8", "--json")
    torchrun = [python(), "-m", "torch.distributed.run", "--nproc-per-node", "2", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(torchrun, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["method"] for line in lines] == ["target", "prompt_lookup"]
    assert lines[0]["output_ids"] == lines[1]["output_ids"]
    assert lines[0]["roofline_share"] is None
