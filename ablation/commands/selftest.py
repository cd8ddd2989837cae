"""`selftest` as a command: the checks of `sampling.proof.selftest` for people and for scripts."""

import json as json_module
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from ablation.commands.options import (
    Device,
    Drafter,
    DrafterDevice,
    Dtype,
    Heads,
    Json,
    Methods,
    Target,
    TrustRemoteCode,
    exit_statuses,
    load,
)

if TYPE_CHECKING:
    from sampling.proof.selftest import Report, Selftest


def selftest(
    methods: Methods = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    target: Target = None,
    drafter: Drafter = None,
    heads: Heads = None,
    drafter_device: DrafterDevice = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Check on a pair that every method leaves the target's output unchanged.

    Exit status: 0 all passed; 1 a check failed, or was too weak to tell; 2 the call is wrong.
    """
    from ablation.plan.choice import choose_names

    with exit_statuses():
        names = None if methods is None else choose_names(methods)
        pair = load(
            {
                "target": target,
                "drafter": drafter,
                "heads": heads,
                "device": device,
                "drafter_device": drafter_device,
                "dtype": dtype,
                "trust_remote_code": trust_remote_code,
            }
        )
        from sampling.proof.selftest import Selftest

        typer.echo("Generating the references", err=True)
        checks = Selftest(pair, names)
        reports = []
        for name in checks.methods:
            typer.echo(f"Checking {name}", err=True)
            reports.append(checks.report(name))
            if json:
                typer.echo(json_module.dumps({**asdict(reports[-1]), "verdict": reports[-1].verdict}))
        if not json:
            _show(checks, reports)
    raise typer.Exit(0 if all(report.verdict == "PASS" for report in reports) else 1)


def _show(checks: "Selftest", reports: "list[Report]") -> None:
    from rich.console import Console
    from rich.table import Table

    from sampling.proof.selftest import FALSE_ALARM

    table = Table("method", "verdict", "check", "", "numbers")
    for report in reports:
        for place, check in enumerate(report.checks):
            numbers = ", ".join(
                f"{name} {value:{'d' if isinstance(value, int) else '.3g'}}" for name, value in check.numbers.items()
            )
            head = ("", "") if place else (report.method, report.verdict)
            table.add_row(*head, check.name, check.verdict, numbers)
    console = Console()
    console.print(table)
    console.print(
        f"law: a FAIL although nothing is wrong happens in at most {FALSE_ALARM:g} of such runs "
        f"(each test at level {checks.level:.2g}).\n"
        "The control is a verifier that is wrong on purpose; where its p-value is above the level too, the test "
        "had too little power for this pair and the verdict is WEAK."
    )
