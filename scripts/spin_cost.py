"""What the spinning of OpenMP's threads costs: forwards of the embedded default over one token, on a free machine and
beside one busy process, for several settings.

uv run scripts/spin_cost.py [--rounds 5] [--forwards 60]

Each measurement is a process of its own, since torch reads the setting when it is imported; the settings take turns.
`auto` is what every other program here does (`utils/device/threads.py`): it looks at the load between forwards, and
its threads block beside others. This script leaves the environment as libgomp wants it.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean, median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from utils.device.machine import Machine, disturbance

PROMPT = "Explain how a river shapes the land it flows through."
OWN, PASSIVE, AUTO = "libgomp's own", "passive", "auto"
VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "SPECULATIVE_WORKBENCH_WAIT")
BUSY = "while True:\n    pass"
SETTLING = 10

Figures = Mapping[str, Any]  # what a measurement prints

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def environment(setting: str) -> dict[str, str]:
    """The environment of a measurement under a setting: `libgomp's own`, `passive`, `auto`, or a count."""
    rest = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if setting in (OWN, AUTO):
        return rest
    return {**rest, "OMP_WAIT_POLICY": "PASSIVE"} if setting == PASSIVE else {**rest, "GOMP_SPINCOUNT": setting}


@contextmanager
def neighbour(there: bool) -> Iterator[None]:
    """A process that keeps one core busy meanwhile, or none."""
    process = subprocess.Popen([sys.executable, "-c", BUSY]) if there else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def measured(setting: str, forwards: int, dtype: str, weights: str) -> Figures:
    """Milliseconds of a forward and cores that others kept busy, in a process under this setting."""
    command = [sys.executable, __file__, "forwards", "--forwards", str(forwards), "--dtype", dtype]
    command += ["--target-weights", weights, *(["--adapt"] if setting == AUTO else [])]
    run = subprocess.run(command, env=environment(setting), capture_output=True, text=True, check=True)
    figures: Figures = json.loads(run.stdout.splitlines()[-1])
    return figures


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    settings: Annotated[str, typer.Option(help="counts, between commas, beside libgomp's own")] = "3000,10000,30000",
    rounds: Annotated[int, typer.Option(min=1, help="how often each setting is measured")] = 5,
    forwards: Annotated[int, typer.Option(min=1, help="forwards of a measurement")] = 60,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16")] = "auto",
    target_weights: Annotated[str, typer.Option(help="full, int8 or int4")] = "full",
) -> None:
    """Forward times by setting, and their ratios to those of libgomp's own setting, medians over the rounds."""
    if context.invoked_subcommand is not None:
        return
    names = [OWN, *settings.split(","), PASSIVE, AUTO]
    runs_of: dict[tuple[str, bool], list[Figures]] = defaultdict(list)
    for turn in range(rounds):
        for busy in (False, True):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                with neighbour(busy):
                    runs_of[name, busy].append(measured(name, forwards, dtype, target_weights))
                print(f"{turn + 1}/{rounds} {name} {'busy' if busy else 'free'}", file=sys.stderr)
    console = Console()
    console.print(_table(names, runs_of))
    if said := disturbance(run["other_cores"] for (_, busy), runs in runs_of.items() if not busy for run in runs):
        console.print(f"free: {said}")


def _table(names: list[str], runs_of: Mapping[tuple[str, bool], list[Figures]]) -> Table:
    """Ratios are medians over rounds, each against libgomp's own setting in the same round; the last one is the speed
    beside a busy process over that on a free machine, by the means, which slow forwards weigh in."""
    table = Table("spin", "free, ms", "ratio", "9 of 10", "beside one, ms", "ratio", "9 of 10", "speed kept", "blocked")
    for name in names:
        cells = [name]
        for busy in (False, True):
            runs, base_runs = runs_of[name, busy], runs_of[OWN, busy]
            ratio = median(run["median_ms"] / base["median_ms"] for run, base in zip(runs, base_runs, strict=True))
            cells += [f"{median(run['median_ms'] for run in runs):.1f}", f"{ratio:.2f}"]
            cells.append(f"{median(run['most_ms'] for run in runs):.1f}")
        pairs = list(zip(runs_of[name, False], runs_of[name, True], strict=True))
        cells.append(f"{median(free['mean_ms'] / busy['mean_ms'] for free, busy in pairs):.2f}")
        shares = [median(run["blocked"] or 0.0 for run in runs_of[name, busy]) for busy in (False, True)]
        table.add_row(*cells, " / ".join(f"{share:.2f}" for share in shares))
    return table


@app.command("forwards")
def measure(forwards: int = 60, dtype: str = "auto", target_weights: str = "full", adapt: bool = False) -> None:
    """One measurement, in this process: a line of JSON. adapt: as other programs here do it."""
    if adapt:
        import utils.device.threads  # noqa: F401
    from sampling.forward.runner import prefill
    from sampling.loading.pairs import LoadOptions, load_pair
    from utils.device.waiting.choice import look

    # The kernel is given, so that a probe beside the neighbour cannot make two settings differ.
    pair = load_pair(LoadOptions(dtype=dtype, kernel="packed", target_weights=target_weights))
    ids, runner, times = pair.encode([PROMPT], chat=True), pair.target, []
    prefill(runner, ids)
    with Machine() as machine:
        for _ in range(SETTLING + forwards):
            start = time.perf_counter()
            runner.forward(ids[-1:])
            look()
            times.append(1e3 * (time.perf_counter() - start))
            runner.crop(len(ids))
    ranked = sorted(times[SETTLING:])
    most = ranked[int(0.9 * (len(ranked) - 1))]
    figures = {"median_ms": median(ranked), "mean_ms": fmean(ranked), "most_ms": most}
    print(json.dumps({**figures, "other_cores": machine.other_cores, "blocked": machine.threads_blocked}))


if __name__ == "__main__":
    app()
