import json
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, typer, ablation.commands.run
from ablation.commands.cli import run
from tests.tiny_pair import tiny_pair
ablation.commands.run.load = lambda *options: tiny_pair()
app = typer.Typer()
app.command()(run)
app()
"""


def _listening() -> None:
    """Hear Ctrl-C even where the tests run in the background of a shell, which shuts the ears of what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_whole_lines_and_130() -> None:
    arguments = ["--prompt", "Hello", "--length", "20", "--repeat", "100000", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_listening,
    )
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(3)]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors and errors.rstrip().endswith("stopped")
    records = [json.loads(line) for line in [*first, *rest.splitlines()]]
    assert all(record["finish_reason"] for record in records)
