"""The command `methods`: everything that the tables hold. No torch is imported."""

import json as json_module
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ablation.commands.shared.options import Json, exit_statuses, out_console
from sampling.methods.method import Method
from sampling.methods.part import OF_DRAFTER, Part
from sampling.methods.rules import CONTROLLERS, DRAFT_RULE
from sampling.methods.tables import METHODS
from utils.parameter import Parameter


def methods(
    name: Annotated[str | None, typer.Argument(metavar="[METHOD]", help="Show only this method or rule.")] = None,
    json: Json = False,
) -> None:
    """List every method with its parameters, their defaults, its source, and whether it is lossless."""
    with exit_statuses():
        rules = list(CONTROLLERS.values())
        if name is not None and name not in METHODS and name in CONTROLLERS:
            chosen, rules = list[Method](), [CONTROLLERS[name]]
        elif name is not None:
            chosen, rules = [METHODS[name]], []
        else:
            chosen = list(METHODS.values())
        if json:
            for facts in (*map(method_facts, chosen), *map(rule_facts, () if chosen else rules)):
                typer.echo(json_module.dumps(facts))
        else:
            console = out_console()
            for method in chosen:
                _show(console, method)
            for rule in rules:
                _show_rule(console, rule)


def method_facts(method: Method) -> dict[str, Any]:
    """A method as plain values."""
    return {
        "method": method.name,
        "title": method.title,
        "help": method.help,
        "lossless": _lossless(method),
        "sources": _sources(method),
        "needs": method.needs(_defaults(method)),
        "parameters": _facts(method.parameters),
    }


def rule_facts(rule: Part) -> dict[str, Any]:
    """A draft-length rule as plain values."""
    sources = [rule.paper] if rule.paper else []
    return {"rule": rule.name, "help": rule.help, "sources": sources, "parameters": _facts(rule.all_parameters)}


def _facts(parameters: Iterable[Parameter]) -> dict[str, dict[str, str]]:
    return {p.name: {"default": p.show(p.default), "allowed": p.usage, "help": p.help} for p in parameters}


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
    from rich.text import Text

    about = method_facts(method)
    console.print(Text.assemble((method.name, "bold"), f"  {method.title}: {method.help}"))
    facts = [f"lossless: {about['lossless']}", *(f"source: {paper}" for paper in about["sources"])]
    if about["needs"] is not None:
        facts.append(_need(about["needs"]))
    console.print(Padding(Text("; ".join(facts), style="dim"), (0, 0, 0, 2)))
    _show_parameters(console, method.own_parameters)
    if DRAFT_RULE in method.parameters:
        rules = "; ".join(f"{rule.name}: {_names(rule)}" for rule in CONTROLLERS.values() if rule.all_parameters)
        text = f"{DRAFT_RULE.name} adds the parameters of its rule; `infer.py methods RULE` explains them. {rules}"
        console.print(Padding(Text(text, style="dim"), (0, 0, 1, 4)))


def _names(rule: Part) -> str:
    return ", ".join(parameter.name for parameter in rule.parameters)


def _show_rule(console: Any, rule: Part) -> None:
    from rich.text import Text

    source = f" ({rule.paper})" if rule.paper else ""
    console.print(Text.assemble((rule.name, "bold"), f"  {DRAFT_RULE.name}: {rule.help}{source}"))
    _show_parameters(console, rule.parameters)


def _show_parameters(console: Any, parameters: Iterable[Parameter]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column(overflow="fold")
    for p in parameters:
        table.add_row(Text(p.name), Text(p.show(p.default), style="green"), Text(p.usage), p.help)
    console.print(Padding(table, (0, 0, 1, 4)))
