"""Write the report of an ablation: tables, paired tests, plots, one page; no model is loaded."""

from pathlib import Path
from typing import Annotated

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses, out_console
from utils.provenance import ROOT
from utils.text import shown

DEFAULT = ROOT / "scripts" / "ablation_results.csv"


def main(
    results: Annotated[
        Path,
        typer.Argument(metavar="RESULTS.csv", help="what a run wrote", show_default="scripts/ablation_results.csv"),
    ] = DEFAULT,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="where it goes; default: RESULTS.report beside the file")
    ] = None,
    spec_bench: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="also write Spec-Bench's answer files and table there")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="also write acceptance by vLLM's and NVIDIA's names there")
    ] = None,
) -> None:
    """Write the report of a results file: index.html, report.md, tables (.csv, .tex) and plots (.png, .svg, .pdf).

    \b
    uv run scripts/report_ablation.py
    uv run scripts/report_ablation.py docs/results/egag/results.csv
    uv run scripts/report_ablation.py results/night.csv --out results/night
    uv run scripts/report_ablation.py results/night.csv --spec-bench answers
    uv run scripts/report_ablation.py results/night.csv --export acceptance
    """
    with exit_statuses():
        # Late, so that --help and a wrong call need no pandas.
        from ablation.report.export import write_acceptance
        from ablation.report.spec_bench import write_spec_bench
        from ablation.report.write import write_report

        report = write_report(results, out)
        if spec_bench is not None:
            write_spec_bench(results, spec_bench, report.warnings, report.formats)
        if export is not None:
            write_acceptance(results, export)
        # Printed last: a reader who leaves early (`| head`) gets all files.
        report.print(out_console())
        typer.echo(f"report: {shown(report.folder / 'index.html')}")
        if spec_bench is not None:
            typer.echo(f"Spec-Bench: {shown(spec_bench)}")
        if export is not None:
            typer.echo(f"acceptance: {shown(export)}")


if __name__ == "__main__":
    run_checked(main)
