"""Does all of it run on this GPU, and how fast is it there? `python scripts/gpu_check.py --out DIR`; see docs/gpu.md.

Each stage is a process of its own, so that what breaks one, or its memory, is gone before the next.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("probe", "right", "fast", "real", "train")
STAGE_S = 500.0
GRACE_S = 40.0
"""So long after it begins nothing new, a stage is ended."""

Stages = Annotated[list[str] | None, typer.Argument(metavar="[STAGE]...", help=f"{', '.join(STAGES)}; default: all")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="where STAGE.json goes; all else goes into DIR-work")]
Device = Annotated[str, typer.Option(help="cuda, cuda:1 or cpu")]
Seconds = Annotated[float, typer.Option(min=1, help="after so many, a stage begins nothing new; probe: 45")]
Tiny = Annotated[bool, typer.Option("--tiny", help="tiny models and few tokens: a dry run, in seconds on a CPU")]


def main(
    stages: Stages = None, *, out: Out, device: Device = "cuda", seconds: Seconds = STAGE_S, tiny: Tiny = False
) -> None:
    """Run the stages, each for nine minutes at most (`probe`: one), also where an earlier one fails.

    Exit status: 0 all went well; 1 a stage
    failed; 2 the call is wrong.
    """
    named = tuple(stages or ())
    if unknown := [name for name in named if name not in STAGES]:
        print(f"error: unknown stage {unknown[0]!r}; expected one of {', '.join(STAGES)}", file=sys.stderr)
        raise typer.Exit(2)
    out.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    for name in named or STAGES:
        if not run(name, out.resolve(), device, seconds, tiny):
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}; the reasons are in {out}", file=sys.stderr)
        raise typer.Exit(1)


def run(name: str, out: Path, device: str, seconds: float, tiny: bool) -> bool:
    """Whether a stage went well, in a process of its own, which is ended in the end with all that it started."""
    words = [sys.executable, "-m", "ablation.gpu_check", name, str(out), device, str(seconds), *["tiny"] * tiny]
    limit = seconds + GRACE_S
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(words, cwd=ROOT, env=environment, start_new_session=True)
    try:
        return process.wait(limit) == 0
    except subprocess.TimeoutExpired:
        print(f"{name}: ended behind {limit:.0f} s; what it had is in {out}", file=sys.stderr)
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for half_written in out.glob(".*.new"):
            half_written.unlink()


if __name__ == "__main__":
    typer.run(main)
