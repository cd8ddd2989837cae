"""`selftest` as a command: the checks of `sampling.proof.selftest` for people and for scripts."""

import json as json_module
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, exit_statuses, load_chosen
from sampling.loading.options import LoadOptions
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from sampling.pair.pair import Pair
    from sampling.proof.selftest import MethodReport, Selftest

Methods = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Methods to check; default: every lossless one that can run.")
]
Full = Annotated[
    bool,
    typer.Option(
        "--full/--quick",
        help="The distribution of every method, in every format of the weights; default: --quick, about a minute.",
    ),
]


@opened(models=LoadOptions)
def selftest(*, methods: Methods = None, full: Full = False, models: Values, json: Json = False) -> None:
    """Check on a pair that every method leaves the target's output unchanged.

    Quick: greedy output, redrafts and rows of every method, and sampled output of the first one. Full: sampled
    output of every method; then greedy output and rows in every other format that this machine has products for,
    where no --target-weights is given.

    Exit status: 0 nothing wrong was found; 1 a check failed; 2 the call is wrong. WEAK means that a check could not
    have noticed a fault on this pair; it is told, and it is no failure.
    """
    from ablation.plan.choice import choose_names

    with exit_statuses():
        names = None if methods is None else choose_names(methods)
        pair = load_chosen(models)
        from sampling.proof.selftest import Selftest, testable
        from utils.device.machine import Machine, disturbance

        typer.echo("Generating the references", err=True)
        reports: list[MethodReport] = []
        with Machine() as machine:
            names = names or testable(pair)
            checks = Selftest(pair, names, sampled=None if full else names[:1])
            try:
                for some in _checks(checks, pair, other_formats=full and "target_weights" not in models):
                    for report in _reports(some, json):
                        reports.append(report)
            finally:  # stopped or broken off, what was found is told
                if not json:
                    _show(checks, reports)
        if disturbed := disturbance([machine.other_cores], "it took longer; verdicts do not depend on that"):
            typer.echo(disturbed, err=True)
    raise typer.Exit(1 if any(report.verdict == "FAIL" for report in reports) else 0)


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
    """What is found on each method, told as it ends with how long the rest may take; printed where it is for scripts.

    The rest is told from the second method on: the first one also pays for what all share.
    """
    times: list[float] = []
    for place, name in enumerate(checks.methods):
        begun = time.perf_counter()
        report = checks.report(name)
        times.append(time.perf_counter() - begun)
        left = (len(checks.methods) - place - 1) * sum(times[1:]) / max(1, place)
        rest = f", about {left:.0f} s left" if place and left else ""
        counted = f"{place + 1} of {len(checks.methods)}"
        typer.echo(f"{report.verdict}  {name} in {report.target_weights}, {counted}: {times[-1]:.0f} s{rest}", err=True)
        if as_json:
            typer.echo(json_module.dumps({**asdict(report), "verdict": report.verdict}))
        yield report


def _show(checks: "Selftest", reports: "list[MethodReport]") -> None:
    from rich.console import Console
    from rich.table import Table

    from sampling.proof.selftest import FALSE_ALARM

    table = Table("weights", "method", "verdict", "check", "result", "numbers")
    for report in reports:
        for place, check in enumerate(report.checks):
            numbers = ", ".join(
                f"{name} {value:{'d' if isinstance(value, int) else '.3g'}}" for name, value in check.numbers.items()
            )
            head = ("", "", "") if place else (report.target_weights, report.method, report.verdict)
            table.add_row(*head, check.name, check.verdict, numbers)
    console = Console()
    console.print(table)
    if checks.sampled:
        console.print(
            f"distribution: the probability of a false FAIL is at most {FALSE_ALARM:g} per run "
            f"(each test at level {checks.level:.2g})."
        )
    if unsampled := [name for name in checks.methods if name not in checks.sampled]:
        console.print(
            f"The distribution of sampled output was tested only for {', '.join(checks.sampled)}, not for the other "
            f"{len(unsampled)}: --full tests all."
        )
    if any(report.verdict == "WEAK" for report in reports):
        console.print(
            "WEAK: no fault was found, but the control, a verifier with a deliberate fault, was not caught "
            "either. The check has too little power on this pair. This is no failure of the method."
        )
