"""Put the shards of an ablation together: one results file, one report; no model is loaded."""

from pathlib import Path
from typing import Annotated

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses, out_console
from utils.device.torchrun import refuse_under_torchrun
from utils.text import counted, shown


def main(
    shards: Annotated[
        list[Path], typer.Argument(metavar="SHARD.csv...", help="what runs with --shard K/N wrote, all of them")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE.csv", help="the results file of the whole plan")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace that file")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="although shards or rows are missing")] = False,
) -> None:
    """Merge the shards of a plan into one results file, each row with its machine (`host`), and report it.

    Shards of other grids, weights, code or versions are refused, and so is a row that is there twice: nothing is
    written then. Machines may differ: ratios are within a machine, which the report says.

    \b
    uv run scripts/merge_ablation.py night.1-of-2.csv night.2-of-2.csv --out night.csv
    """
    with exit_statuses():
        refuse_under_torchrun("merge_ablation.py", "one process")
        from ablation.report.load import load_results
        from ablation.report.write import write_report
        from ablation.results.merge import merge

        merged = merge(shards, out, partial, overwrite, load_results)
        for sentence in merged.missing:
            typer.echo(f"missing: {shown(sentence)}", err=True)
        report = write_report(out)
        report.print(out_console())
        hosts = f"{counted(len(merged.hosts), 'host')} ({shown(', '.join(merged.hosts))})"
        typer.echo(f"{counted(merged.rows, 'row')} of {hosts}")
        typer.echo(f"results {shown(out)}\nreport  {shown(report.folder / 'index.html')}")


if __name__ == "__main__":
    run_checked(main)
