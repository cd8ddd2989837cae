"""The command behind `scripts/run_ablation.py`. What costs seconds to import is imported once a call is right."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.shared.earlier_rows import EarlierRows
from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import exit_statuses, out_console, refuse_for_several
from ablation.plan.overrides import Overrides
from sampling.loading.options import LoadOptions
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values
from utils.provenance import CHECKOUT, ROOT

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from ablation.run.workers import Device
    from sampling.pair.pair_engine import PairEngine

DEFAULT_RESULTS = ROOT / "scripts" / "ablation_results.csv" if CHECKOUT else Path("ablation_results.csv")

EXAMPLES = """\b
Examples:
  uv run scripts/run_ablation.py
      the plan quick: AR, SD, EGAG and NASD on 8 prompts
  uv run scripts/run_ablation.py gamma --limit 4 --out g.csv
      a built-in plan on four prompts
  uv run scripts/run_ablation.py --prompt "Tell me a story" --methods speculative --gamma 2,4,6
      one prompt, three draft lengths
  uv run scripts/run_ablation.py my.toml --dry-run
      the grid, and about how long it takes
  uv run scripts/run_ablation.py my.toml --resume
      continue after Ctrl-C, a crash or a kill
  uv run scripts/run_ablation.py my.toml --resume --retry-failed
      the same, and play the rows that failed again
  uv run scripts/run_ablation.py my.toml --out n.csv --shard 2/5
      one of five parts, into n.2-of-5.csv; scripts/merge_ablation.py puts them together
  uv run scripts/run_ablation.py my.toml --out n.csv --ray auto
      on every GPU of a running Ray cluster, or on every machine of one without GPUs
"""

PlanName = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A built-in plan, such as quick or trained (docs/plans.md), or a .toml file.",
    ),
]
Results = Annotated[
    Path, typer.Option(metavar="FILE.csv", help="The results file.", show_default="scripts/ablation_results.csv")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the results file.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="With --resume: run failed rows again.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the results file.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the grid and a time estimate; write nothing.")]
WaitQuiet = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="Maximum wait for an idle machine before each generation."),
]
Shard = Annotated[
    str | None, typer.Option(metavar="K/N", help="Run part K of N, into FILE.K-of-N.csv (docs/scale.md).")
]
Workers = Annotated[int | None, typer.Option(metavar="N", min=1, help="Run on N GPUs of this machine in parallel.")]
Devices = Annotated[
    str | None, typer.Option(metavar="D,...", help="Device of each worker: cuda:0,cuda:1 or cpu:0-3,cpu:4-7.")
]
Ray = Annotated[
    str | None,
    typer.Option(metavar="auto|local|ADDRESS", help="Run on all devices of a Ray cluster (docs/scale.md)."),
]


@opened(instead=Overrides, models=LoadOptions)
def ablate(
    plan: PlanName = "quick",
    *,
    instead: Values,
    out: Results = DEFAULT_RESULTS,
    resume: Resume = False,
    retry_failed: RetryFailed = False,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    wait_quiet: WaitQuiet = 0.0,
    shard: Shard = None,
    workers: Workers = None,
    devices: Devices = None,
    ray: Ray = None,
    models: Values,
) -> None:
    """Run a grid of methods on prompts, write a CSV file, and report it with statistics and plots.

    Each row is on disk before the next generation starts: after Ctrl-C, a crash or a kill, --resume
    continues. Plain autoregression is always included, and once more as a control that shows the noise.

    Exit status: 0 all ran; 1 a generation failed or the output could not be written; 2 the call is wrong; 130
    stopped by Ctrl-C, after the current row and the report.
    """
    with exit_statuses():
        from ablation.plan.file import read_experiment

        _refuse_several_ways({"--ray": ray, "--shard": shard, "--workers": workers, "--devices": devices})
        experiment = read_experiment(plan, Overrides(**instead, pair=models))
        refuse_for_several(experiment.plan.batches, experiment.plan.sides, experiment.plan.formats)
        if experiment.plan.share_prefill:
            refuse_under_torchrun("share_prefill", "a plan without, or one process")
        if shard is not None:
            experiment, out = _dealt(experiment, out, shard)
        earlier = EarlierRows(resume, overwrite, retry_failed)
        if dry_run:
            status = _dry_run(experiment, ray)
        elif ray is not None:
            status = _run_on_ray(experiment, out, earlier, wait_quiet, ray)
        elif workers is None and devices is None:
            status = _run(experiment, out, earlier, wait_quiet)
        else:
            status = _run_workers(experiment, out, earlier, _devices(workers, devices))
    raise typer.Exit(status)


def _refuse_several_ways(options: Mapping[str, object]) -> None:
    """Raise `UserError` where a plan would be divided in two ways, torchrun's among them."""
    ways = [name for name, value in options.items() if value is not None]
    if len(ways) > 1 and ways != ["--workers", "--devices"]:
        dropped = " and ".join(ways[1:])
        raise UserError(f"{' and '.join(ways)} given; expected one of them, as each divides the plan: drop {dropped}")
    for name in ways:
        if name != "--shard":
            refuse_under_torchrun(name, "one of the ways to use several processes")


def _dealt(experiment: "Experiment", out: Path, text: str) -> tuple["Experiment", Path]:
    """What a shard plays, and its own results file. Raises `UserError`."""
    from ablation.plan.shard import Shard, dealt

    shard = Shard.parse(text)
    return replace(experiment, plan=dealt(experiment.plan, shard)), shard.file(out)


def _engine(experiment: "Experiment") -> "PairEngine":
    from ablation.commands.shared.options import load_chosen
    from ablation.plan.formats import to_load
    from sampling.pair.pair_engine import PairEngine

    plan = experiment.plan
    return PairEngine(load_chosen(to_load(experiment.pair), plan.configurations, plan.values))


def _called() -> str:
    """The command line, for the manifest."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _dry_run(experiment: "Experiment", ray: str | None) -> int:
    from ablation.plan.shard import jobs
    from ablation.run.costing.probe import foreseen
    from ablation.run.progress.estimate import grid_table
    from ablation.run.rounded import memory_text

    out_console().print(grid_table(experiment.plan))
    engine = _engine(experiment)
    if experiment.plan.formats:
        typer.echo(memory_text(engine, experiment.plan.formats))
    typer.echo(foreseen(engine, experiment.plan).text)
    if ray is not None:
        typer.echo(f"on this machine alone; Ray has {len(jobs(experiment.plan))} parts to hand out")
    return 0


def _run(experiment: "Experiment", out: Path, earlier: EarlierRows, wait_quiet_s: float) -> int:
    from rich.console import Console

    from ablation.run import shared_choices
    from ablation.run.conduct import conduct_into
    from sampling.forward.kernels.int8 import decided

    experiment, rough = shared_choices.taken(*earlier.ready(experiment, out))
    with decided(rough):
        engine = _engine(experiment)
        shared_choices.tell(experiment, engine)
        outcome = conduct_into(
            out,
            experiment,
            engine,
            command=_called(),
            out=out_console(),
            err=Console(stderr=True),
            resume=earlier.resume,
            retry_failed=earlier.retry_failed,
            wait_quiet_s=wait_quiet_s,
        )
    return 130 if outcome.stopped else 1 if outcome.failed + outcome.failed_before else 0


def _run_on_ray(experiment: "Experiment", out: Path, earlier: EarlierRows, wait_quiet_s: float, address: str) -> int:
    from rich.console import Console

    from ablation.run.on_ray.conduct import conduct_on_ray

    experiment, rough = earlier.ready(experiment, out)
    return conduct_on_ray(
        address,
        out,
        experiment,
        rough=rough,
        command=_called(),
        out=out_console(),
        err=Console(stderr=True),
        resume=earlier.resume,
        retry_failed=earlier.retry_failed,
        wait_quiet_s=wait_quiet_s,
    )


def _devices(workers: int | None, devices: str | None) -> "tuple[Device, ...]":
    """What the workers run on. Raises `UserError`."""
    from ablation.run.workers import read_devices

    if devices is None:
        import torch

        there = torch.cuda.device_count()
        if workers is not None and there < workers:
            raise UserError(
                f"--workers {workers} given, and this machine has {there} GPUs: workers that share one, or cores, "
                "would measure each other; give each its own with --devices, such as cpu:0-3,cpu:4-7"
            )
        devices = ",".join(f"cuda:{number}" for number in range(workers or there))
    chosen_devices = read_devices(devices)
    if workers not in (None, len(chosen_devices)):
        raise UserError(f"--workers {workers} and --devices {devices} given; expected a device for each worker")
    return chosen_devices


def _run_workers(experiment: "Experiment", out: Path, earlier: EarlierRows, devices: "tuple[Device, ...]") -> int:
    from rich.console import Console

    from ablation.report.write import write_report
    from ablation.results.merge import merge
    from ablation.run.workers import play_workers

    earlier.check(out)
    err = Console(stderr=True)
    played = play_workers(experiment.plan, out, devices, _without(sys.argv, ("--workers", "--devices")), err)
    statuses = [worker.status for worker in played]
    for worker in played:
        if worker.status not in (0, 1, 130):
            typer.echo(f"worker {worker.shard.text} {worker.end}: {worker.said()}; see {worker.log}", err=True)
    if 130 in statuses:
        files = ", ".join(worker.results.name for worker in played if worker.results.is_file()) or "none yet"
        typer.echo(
            f"stopped; the rows that are there are safe ({files}): the same command with --resume goes on and merges "
            "them",
            err=True,
        )
        return 130
    if not set(statuses) <= {0, 1}:
        typer.echo("the rows that are there are safe: the same command with --resume goes on", err=True)
        return 1
    merged = merge([worker.results for worker in played], out, overwrite=True)
    report = write_report(out)
    report.print(out_console())
    typer.echo(f"{merged.rows} rows\nresults {out}\nreport  {report.folder / 'index.html'}", err=True)
    return max(status or 0 for status in statuses)


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """A command line without some options and their values."""
    kept, skip = [], False
    for word in words:
        if not skip and word.partition("=")[0] not in options:
            kept.append(word)
        skip = not skip and word in options
    return kept
