"""The command behind `scripts/run_ablation.py`. What costs seconds to import is imported once a call is right."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.commands.opened import opened
from ablation.commands.options import exit_statuses, out_console
from ablation.plan.overrides import Overrides
from sampling.loading.options import LoadOptions
from utils.errors import UserError
from utils.parameter import Values
from utils.provenance import ROOT

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from sampling.pair_engine import PairEngine

DEFAULT_RESULTS = ROOT / "scripts" / "ablation_results.csv"

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
"""


@opened(instead=Overrides, models=LoadOptions)
def ablate(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="A built-in plan, such as quick or trained (docs/plans.md), or a .toml file.",
        ),
    ] = "quick",
    *,
    instead: Values,
    out: Annotated[
        Path, typer.Option(metavar="FILE.csv", help="The results file.", show_default="scripts/ablation_results.csv")
    ] = DEFAULT_RESULTS,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the results file.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results file.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the grid and a time estimate; write nothing.")
    ] = False,
    wait_quiet: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Longest wait for an idle machine before each generation."),
    ] = 0.0,
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

        experiment = read_experiment(plan, Overrides(**instead, pair=models))
        status = _dry_run(experiment) if dry_run else _run(experiment, out, resume, overwrite, wait_quiet)
    raise typer.Exit(status)


def _engine(pair: Mapping[str, Any]) -> "PairEngine":
    from ablation.commands.options import load_chosen
    from ablation.plan.formats import to_load
    from sampling.pair_engine import PairEngine

    return PairEngine(load_chosen(to_load(pair)))


def _as_before(experiment: "Experiment", manifest: Path) -> tuple[Mapping[str, Any], bool | None]:
    """The pair's options with the kernel of the rows that are there, and whether their drafters were rounded.

    Raises `UserError` where another kernel is asked for.
    """
    from ablation.results.manifest import chosen

    kernel, rough = chosen(manifest, experiment.plan)
    given = experiment.pair.get("kernel", "auto")
    if kernel is not None and given not in ("auto", kernel):
        raise UserError(
            f"--resume: the rows were made with the {kernel} kernel, and --kernel {given} is given; "
            "leave --kernel out, or choose another --out"
        )
    return experiment.pair if kernel is None else {**experiment.pair, "kernel": kernel}, rough


def _dry_run(experiment: "Experiment") -> int:
    from ablation.run.estimate import grid_table
    from ablation.run.probe import foreseen
    from ablation.run.rounded import memory_text

    out_console().print(grid_table(experiment.plan))
    engine = _engine(experiment.pair)
    if experiment.plan.formats:
        typer.echo(memory_text(engine, experiment.plan.formats))
    typer.echo(foreseen(engine, experiment.plan).text)
    return 0


def _run(experiment: "Experiment", out: Path, resume: bool, overwrite: bool, wait_quiet_s: float) -> int:
    from rich.console import Console

    from ablation.run.conduct import conduct_into
    from ablation.run.results_file import Files, check_output
    from sampling.forward.int8 import decided

    check_output(out, resume, overwrite)
    files = Files(out)
    goes_on = resume and files.results.is_file()
    pair, rough = _as_before(experiment, files.manifest) if goes_on else (experiment.pair, None)
    with decided(rough):
        outcome = conduct_into(
            out,
            experiment,
            _engine(pair),
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            out=out_console(),
            err=Console(stderr=True),
            resume=resume,
            wait_quiet_s=wait_quiet_s,
        )
    return 130 if outcome.stopped else 1 if outcome.failed + outcome.failed_before else 0
