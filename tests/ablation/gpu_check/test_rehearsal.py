"""Every stage with the versions of a card's machine, and torch for older drivers. Both need a package index."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ablation.gpu_check.packed import MOST_BYTES
from scripts.gpu_check import STAGES
from utils.provenance import ROOT

PYTHON = "3.12"
VERSIONS = ("torch==2.11.*", "transformers==5.17.*")
MOST_FILES = 8
UV = shutil.which("uv") or os.environ.get("UV", "")
PAGE = ROOT / "docs" / "gpu.md"
LINUX = ("--python-platform", "x86_64-manylinux_2_28")

pytestmark = [pytest.mark.gpu_rehearsal, pytest.mark.timeout(3000)]


def called(*words: str | Path, seconds: float = 1200.0, status: int = 0) -> str:
    """What a command says on both streams; nothing of this environment leads it back here."""
    left_out = {"VIRTUAL_ENV", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "CUDA_VISIBLE_DEVICES"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**environment, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == status, done.stdout[-4000:]
    return done.stdout


def interpreter() -> str:
    """Python of this version: one that pyenv holds, else what uv finds or fetches."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return str(next(iter(sorted(versions.glob(f"{PYTHON}.*/bin/python"))), PYTHON))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with these versions, the project's dependencies and the default weights."""
    folder = tmp_path_factory.mktemp("card") / "env"
    called(UV, "venv", "--quiet", "--python", interpreter(), folder)
    path = folder / "bin" / "python"
    called(UV, "pip", "install", "--quiet", "--python", path, *VERSIONS, "-r", "pyproject.toml")
    weights = re.search(r'weights = \["(\S+)"\]', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert weights
    called(UV, "pip", "install", "--quiet", "--python", path, "--no-deps", weights[1])
    return path


def test_every_stage_runs_with_the_versions_of_a_cards_machine(python: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    called(python, "scripts/gpu_check.py", "--out", out, "--device", "cpu", "--tiny", seconds=2400.0)
    for stage in STAGES:
        said = json.loads((out / f"{stage}.json").read_text(encoding="utf-8"))
        assert said["finished"] and said["failed"] == {}
        versions = said["versions"]
        assert all(versions[name.split("==")[0]].startswith(name.split("==")[1][:-1]) for name in VERSIONS)
        assert said["machine"]
    files = list(out.rglob("*"))
    assert len(files) <= MOST_FILES and all(file.is_file() and file.parent == out for file in files)
    assert all(file.stat().st_size < MOST_BYTES for file in files)


def test_torch_for_older_drivers_resolves(python: Path) -> None:
    """The command of the page: with all that the project needs, for Linux, its CUDA is of the twelfth version."""
    (command,) = re.findall(r"^uv pip install .*torch.*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    _, _, _, *asked = shlex.split(command)
    told = called(
        UV, "pip", "install", "--dry-run", "--python", python, *LINUX, "--reinstall", *asked, "-r", "pyproject.toml"
    )
    assert re.search(r"\+ torch==2\.\d+\.\d+", told) and re.search(r"\+ nvidia-cuda-runtime-cu12==12\.", told)
    assert "cu13" not in told and "nvidia-cuda-runtime==" not in told
