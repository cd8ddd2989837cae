"""The array job: each task plays its shard, and goes on where it is started again."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from ablation.results.merge import merge
from tests.ablation.playing import rows
from tests.forked import python
from tests.tiny import llama, save_checkpoint
from utils.provenance import ROOT

UV = """#!/bin/bash
shift
exec "{python}" "$@"
"""


@pytest.mark.skipif(os.name == "nt", reason="Slurm runs bash")
def test_tasks_of_an_array_are_shards(tmp_path: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV.format(python=python()))
    uv.chmod(uv.stat().st_mode | stat.S_IXUSR)
    model = str(save_checkpoint(tmp_path / "t", llama(max_position_embeddings=512)))
    words = ["--prompt", "a", "--seeds", "2", "--length", "4", "--methods", "prompt_lookup", "--target", model]
    words += ["--dtype", "float32"]  # what auto takes may change from start to start
    words += ["--drafter", model, "--out", str(tmp_path / "n.csv")]
    path = {"PATH": f"{uv.parent}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_COUNT": "2"}
    for task in ("1", "2", "2"):
        subprocess.run(
            ["bash", str(ROOT / "scripts" / "ablation.sbatch"), *words],
            cwd=ROOT,
            env={**os.environ, **path, "SLURM_ARRAY_TASK_ID": task},
            check=True,
            capture_output=True,
        )
    shards = [tmp_path / f"n.{task}-of-2.csv" for task in (1, 2)]
    assert [len(rows(shard)) for shard in shards] == [3, 3]
    assert merge(shards, tmp_path / "n.csv").rows == 6
