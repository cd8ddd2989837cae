"""`selftest` as a command: the checks of `sampling.proof.selftest` for people and for scripts."""

import json as json_module
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, Methods, exit_statuses, load_chosen
from sampling.loading.options import LoadOptions
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from sampling.pair.pair import Pair
    from sampling.proof.selftest import MethodReport, Selftest


@opened(models=LoadOptions)
def selftest(*, methods: Methods = None, models: Values, json: Json = False) -> None:
    """Check on a pair that every method leaves the target's output unchanged.

    Where no --target-weights is given, in every format that this machine has products for; in the rounded ones greedy
    output and rows alone, because the distribution test does not depend on rounding.

    Exit status: 0 all passed; 1 a check failed, or was too weak to tell; 2 the call is wrong.
    """
    from ablation.plan.choice import choose_names

    with exit_statuses():
        names = None if methods is None else choose_names(methods)
        pair = load_chosen(models)
        from sampling.proof.selftest import Selftest
        from utils.device.machine import Machine, disturbance

        typer.echo("Generating the references", err=True)
        reports: list[MethodReport] = []
        with Machine() as machine:
            checks = Selftest(pair, names)
            try:
                for some in _checks(checks, pair, other_formats="target_weights" not in models):
                    for report in _reports(some, json):
                        reports.append(report)
            finally:  # stopped or broken off, what was found is told
                if not json:
                    _show(checks, reports)
        if disturbed := disturbance([machine.other_cores], "it took longer; verdicts do not depend on that"):
            typer.echo(disturbed, err=True)
    raise typer.Exit(0 if all(report.verdict == "PASS" for report in reports) else 1)


def _checks(checks: "Selftest", pair: "Pair", other_formats: bool) -> "Iterator[Selftest]":
    """The checks, then the same without draws on the target in each other format, where that is wanted."""
    from sampling.proof.selftest import Selftest

    yield checks
    for other in _other_formats(pair) if other_formats else ():
        yield Selftest(other, checks.methods, draws=0)


def _other_formats(pair: "Pair") -> "Iterator[Pair]":
    """The pair with its target in each format that it can be loaded in."""
    from sampling.forward.kernels.formats import FORMATS
    from sampling.forward.models.lean import LeanModel

    if not isinstance(pair.target.model, LeanModel):
        return
    for name in FORMATS:
        if name != pair.target_info.stored:
            try:
                yield pair.in_format(name)
            except UserError as error:
                typer.echo(f"{name} is not checked: {error}", err=True)


def _reports(checks: "Selftest", as_json: bool) -> "Iterator[MethodReport]":
    """What is found on each method, printed at once where it is for scripts."""
    for name in checks.methods:
        typer.echo(f"Checking {name} on {checks.pair.target_info.stored}", err=True)
        report = checks.report(name)
        if as_json:
            typer.echo(json_module.dumps({**asdict(report), "verdict": report.verdict}))
        yield report


def _show(checks: "Selftest", reports: "list[MethodReport]") -> None:
    from rich.console import Console
    from rich.table import Table

    from sampling.proof.selftest import FALSE_ALARM

    table = Table("weights", "method", "verdict", "check", "", "numbers")
    for report in reports:
        for place, check in enumerate(report.checks):
            numbers = ", ".join(
                f"{name} {value:{'d' if isinstance(value, int) else '.3g'}}" for name, value in check.numbers.items()
            )
            head = ("", "", "") if place else (report.target_weights, report.method, report.verdict)
            table.add_row(*head, check.name, check.verdict, numbers)
    console = Console()
    console.print(table)
    console.print(
        f"distribution: a FAIL with nothing wrong happens in at most {FALSE_ALARM:g} of such runs "
        f"(each test at level {checks.level:.2g}).\n"
        "The control is a verifier that is wrong on purpose; where its p-value is above the level too, the test "
        "had too little power for this pair and the verdict is WEAK."
    )
