"""The PowerShell door, where there is a PowerShell."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "run_ablation.ps1"
PWSH = shutil.which("pwsh") or shutil.which("powershell")
pytestmark = pytest.mark.skipif(PWSH is None, reason="no PowerShell")


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A program that shows its arguments, one a line, and ends with 7."""
    path = tmp_path / "show me.py"
    path.write_text("import sys\nprint('\\n'.join(sys.argv[1:]))\nsys.exit(7)\n", encoding="utf-8")
    return path


def run(runner: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PWSH is not None
    command = [PWSH, "-NoProfile", "-File", str(SCRIPT), "-Runner", f'"{sys.executable}" "{runner}"', *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_same_script_gets_the_same_arguments_and_its_status_comes_back(runner: Path, tmp_path: Path) -> None:
    done = run(runner, "gamma", "-Prompt", 'Say "hello world"', "--gamma", "2,4", "--dry-run")
    assert done.returncode == 7
    first, *rest = done.stdout.splitlines()
    assert Path(first).name == "run_ablation.py"
    assert rest == ["gamma", "--gamma", "2,4", "--dry-run", "--prompt", 'Say "hello world"']


def test_nothing_given_runs_the_script_alone(runner: Path) -> None:
    assert [Path(line).name for line in run(runner).stdout.splitlines()] == ["run_ablation.py"]
