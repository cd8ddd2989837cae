"""The command behind `scripts/run_ablation.py`. What costs seconds to import is imported once a call is right."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.opened import opened
from ablation.commands.options import exit_statuses, out_console
from ablation.plan.overrides import Overrides
from sampling.loading.options import LoadOptions
from utils.parameter import Values
from utils.provenance import ROOT

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from sampling.engine import Engine

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
      go on after Ctrl-C, a crash or a kill
"""


@opened(instead=Overrides, models=LoadOptions)
def ablate(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help="quick, gamma, nasd, egag, copies, trained, paper, or a .toml file.")
    ] = "quick",
    *,
    instead: Values,
    out: Annotated[
        Path, typer.Option(metavar="FILE.csv", help="The results file.", show_default="scripts/ablation_results.csv")
    ] = DEFAULT_RESULTS,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the results file.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the results file.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the grid and a time estimate; write nothing.")
    ] = False,
    models: Values,
) -> None:
    """Run a grid of methods over prompts into a CSV file, and report it with statistics and plots.

    Each row is on the disk before the next generation starts: after Ctrl-C, a crash or a kill, --resume goes
    on. Plain autoregression is always there, and once more as a control that shows the noise.

    Exit status: 0 all ran; 1 a generation failed or the output could not be written; 2 the call is wrong; 130
    stopped by Ctrl-C, after the row under way and its report.
    """
    with exit_statuses():
        from ablation.plan.file import read_experiment

        experiment = read_experiment(plan, Overrides(**instead, pair=models))
        status = _dry_run(experiment) if dry_run else _run(experiment, out, resume, overwrite)
    raise typer.Exit(status)


def _engine(experiment: "Experiment") -> "Engine":
    from ablation.commands.options import load
    from sampling.engine import Engine

    return Engine(load(experiment.pair))


def _dry_run(experiment: "Experiment") -> int:
    from ablation.run.estimate import grid_table
    from ablation.run.probe import estimated

    out_console().print(grid_table(experiment.plan))
    typer.echo(estimated(_engine(experiment), experiment.plan, one_a_method=True).text)
    return 0


def _run(experiment: "Experiment", out: Path, resume: bool, overwrite: bool) -> int:
    from rich.console import Console

    from ablation.run.conduct import conduct_into
    from ablation.run.results_file import check_output

    check_output(out, resume, overwrite)
    outcome = conduct_into(
        out,
        experiment,
        _engine(experiment),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        out=out_console(),
        err=Console(stderr=True),
        resume=resume,
    )
    return 130 if outcome.stopped else 1 if outcome.failed + outcome.failed_before else 0
