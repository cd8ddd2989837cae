"""The command `methods`: everything that the tables hold. No torch is imported."""

import json as json_module
from typing import Annotated, Any

import typer

from ablation.commands.options import Json, exit_statuses, out_console
from sampling.method import Method
from sampling.methods import METHODS
from sampling.part import OF_DRAFTER


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[METHOD]", help="Show only this method.")] = None,
    json: Json = False,
) -> None:
    """List every method with its parameters, their defaults, its source, and whether it is lossless."""
    with exit_statuses():
        chosen = [METHODS[name]] if name is not None else list(METHODS.values())
        if json:
            for method in chosen:
                typer.echo(json_module.dumps(method_facts(method)))
        else:
            console = out_console()
            for method in chosen:
                _show(console, method)


def method_facts(method: Method) -> dict[str, Any]:
    """A method as plain values."""
    return {
        "method": method.name,
        "title": method.title,
        "help": method.help,
        "lossless": _lossless(method),
        "sources": _sources(method),
        "needs": method.needs(_defaults(method)),
        "parameters": {
            p.name: {"default": p.show(p.default), "allowed": p.usage, "help": p.help} for p in method.parameters
        },
    }


def _sources(method: Method) -> list[str]:
    named = method.drafts or method.search
    return list(dict.fromkeys(part.paper for part in method.parts if part.paper)) if named else []


def _defaults(method: Method) -> dict[str, Any]:
    return {parameter.name: parameter.default for parameter in method.parameters}


def _lossless(method: Method) -> str:
    if method.other is not None:
        return f"{method.other}: not compared with plain autoregression"
    return "depends on verify_strategy and accept_policy; by default yes" if method.drafts else "yes"


def _need(needed: str) -> str:
    if needed == "model":
        return "needs a drafter model"
    if needed.startswith(OF_DRAFTER):
        return f"needs a drafter model with a trained {needed.removeprefix(OF_DRAFTER)} head"
    return f"needs a trained {needed} head"


def _show(console: Any, method: Method) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    about = method_facts(method)
    console.print(Text.assemble((method.name, "bold"), f"  {method.title}: {method.help}"))
    facts = [f"lossless: {about['lossless']}", *(f"source: {paper}" for paper in about["sources"])]
    if about["needs"] is not None:
        facts.append(_need(about["needs"]))
    console.print(Padding(Text("; ".join(facts), style="dim"), (0, 0, 0, 2)))
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(overflow="fold")
    for name, parameter in about["parameters"].items():
        table.add_row(
            Text(name), Text(parameter["default"], style="green"), Text(parameter["allowed"]), parameter["help"]
        )
    console.print(Padding(table, (0, 0, 1, 4)))
