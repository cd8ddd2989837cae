"""Whether a change made decoding slower: the same generations in two checkouts, which take turns.

uv run scripts/compare_checkouts.py OLD NEW [--formats float32,bfloat16,int8,int4] [--turns 3] [--prompts 3]

Each turn is one `infer.py run` in one checkout, with that checkout's own environment (`uv sync` there first). The
order is old, new, new, old, ..., so that a slow drift of the machine falls on both. A checkout beside itself is the
control.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from utils.device.machine import disturbance
from utils.numbers.intervals import bootstrap_median

METHODS = ("target", "speculative gamma=4", "suffix", "mtp", "auto", "mtp draft_tree=dynamic tree_tokens=8")
FORMATS = {
    "float32": ("--dtype", "float32"),
    "bfloat16": ("--dtype", "bfloat16"),
    "int8": ("--target-weights", "int8"),
    "int4": ("--target-weights", "int4"),
}
SETS = Path(__file__).resolve().parent.parent / "ablation" / "prompts"

Row = dict[str, Any]
Turn = dict[tuple[str, str], Row]
"""The rows of one process, by (configuration, prompt)."""


def prompts_file(folder: Path, count: int) -> Path:
    """A file of the first prompts of the sets `grounded`, `code` and `dialogue` in turn."""
    sets = [(SETS / f"{name}.jsonl").read_text().splitlines() for name in ("grounded", "code", "dialogue")]
    lines = [line for several in zip(*sets, strict=True) for line in several]
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(lines[:count]) + "\n")
    return path


def play(checkout: Path, prompts: Path, options: tuple[str, ...], methods: str, length: int) -> Turn:
    """One process of a checkout. Raises `typer.Exit` with its message where it fails."""
    command = ["uv", "run", "--no-sync", "infer.py", "run", "--json", "--prompts", str(prompts), "--methods", methods]
    command += ["--length", str(length), *options]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if run.returncode:
        print(f"{checkout}: exit status {run.returncode}\n{run.stderr[-2000:]}", file=sys.stderr)
        raise typer.Exit(1)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    return {(row["configuration"], row["id"]): row for row in rows}


def step_ms(row: Row) -> float:
    """Milliseconds of a round; of `auto`, which chooses its rounds by the clock, of a token."""
    return 1e3 * float(row["decode_s"]) / int(row["new_tokens" if row["method"] == "auto" else "rounds"])


def compared(old: list[Turn], new: list[Turn], configuration: str) -> Iterator[str]:
    """The cells of a configuration's row."""
    ratios, before, after = list[float](), list[float](), list[float]()
    equal = total = 0
    for first, second in zip(old, new, strict=True):
        for (name, prompt), row in first.items():
            if name != configuration:
                continue
            other = second[name, prompt]
            before.append(step_ms(row))
            after.append(step_ms(other))
            ratios.append(after[-1] / before[-1])
            equal += row["output_ids"] == other["output_ids"]
            total += 1
    middle, low, high = bootstrap_median(ratios)
    yield f"{median(before):.2f}"
    yield f"{median(after):.2f}"
    yield f"{middle:.3f} ({low:.3f} to {high:.3f})"
    yield f"{equal} of {total}"
    peaks = [max(row["peak_memory_mb"] for turn in side for row in turn.values()) for side in (old, new)]
    yield f"{peaks[0]:.0f} / {peaks[1]:.0f}"


def main(
    old: Annotated[Path, typer.Argument(help="checkout before the change", exists=True, file_okay=False)],
    new: Annotated[Path, typer.Argument(help="checkout with it", exists=True, file_okay=False)],
    formats: Annotated[str, typer.Option(help=f"of {', '.join(FORMATS)}, between commas")] = ",".join(FORMATS),
    methods: Annotated[str, typer.Option(help="as of infer.py run")] = ",".join(METHODS),
    turns: Annotated[int, typer.Option(min=1, help="processes of each checkout and format")] = 3,
    prompts: Annotated[int, typer.Option(min=1, max=60, help="prompts of a process")] = 3,
    length: Annotated[int, typer.Option(min=1, help="new tokens of a generation")] = 64,
) -> None:
    """Milliseconds a round (`auto`: a token) in both checkouts, their paired ratio, and whether the ids agree."""
    if unknown := [name for name in formats.split(",") if name not in FORMATS]:
        raise typer.BadParameter(f"formats {unknown[0]!r} given; expected of {', '.join(FORMATS)}")
    console = Console()
    table = Table("format", "configuration", "old, ms", "new, ms", "new / old", "ids equal", "peak MB, old / new")
    with TemporaryDirectory() as folder:
        path = prompts_file(Path(folder), prompts)
        for name in formats.split(","):
            played: tuple[list[Turn], list[Turn]] = ([], [])
            for turn in range(turns):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    checkout = (old, new)[side]
                    played[side].append(play(checkout, path, FORMATS[name], methods, length))
                    print(f"{name} {turn + 1}/{turns} {checkout}", file=sys.stderr)
            for configuration in dict.fromkeys(key[0] for key in played[0][0]):
                table.add_row(name, configuration, *compared(*played, configuration))
            rows = [row for side in played for turn in side for row in turn.values()]
            if warning := disturbance(row["other_cores"] for row in rows):
                console.print(f"{name}: {warning}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
