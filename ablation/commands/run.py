"""The command `run`. What costs seconds to import is imported once a call is known to be right."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ablation.commands.opened import opened
from ablation.commands.options import Json, Methods, exit_statuses, load
from sampling.loading.options import LoadOptions
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ablation.plan.grid import Plan
    from ablation.results.record import Record
    from sampling.pair import Pair

Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting; repeatable.")]


@opened(models=LoadOptions)
def run(
    *,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="One prompt.")] = None,
    prompts: Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="A file of prompts.")] = None,
    methods: Methods = None,
    assignments: Assignments = None,
    length: Annotated[int | None, typer.Option(help="Most tokens to generate.")] = None,
    processor: Annotated[str | None, typer.Option(help='As in "nucleus 0.8 0.9".')] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of every method.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="How often, interleaved.")] = 1,
    models: Values,
    speculative_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help='As servers take it: {"method": "draft_model", "num_speculative_tokens": 4}.'
        ),
    ] = None,
    json: Json = False,
    trace: Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="One line a round.")] = None,
) -> None:
    """Generate once for each prompt, method and repeat, and report what was measured.

    Exit status: 0 all ran; 1 a generation failed or the output could not be written; 2 the call is wrong; 130
    stopped by Ctrl-C: finished generations have been reported.
    """
    from ablation.commands import request
    from ablation.plan.choice import choose_methods

    with exit_statuses():
        config = request.choose_config(speculative_config, methods, models)
        named = [*(config.assignments if config else ()), ("length", length), ("processor", processor), ("seed", seed)]
        settings = request.choose_settings(assignments or (), named)
        names = config.methods if config else choose_methods(methods, settings)
        played = request.choose_prompts(prompt, prompts)
        with request.open_trace(trace) or nullcontext() as trace_file:
            pair = load({**models, **(config.models if config else {})})
            from ablation.plan.grid import plain_plan

            if methods is None and config is None:
                names = _runnable(names, pair, settings)
            failed = _execute(pair, plain_plan(played, names, settings, repeat), json, trace_file)
    raise typer.Exit(1 if failed else 0)


def _runnable(names: tuple[str, ...], pair: "Pair", values: Mapping[str, Any]) -> tuple[str, ...]:
    """The methods that nobody asked for by name, without those that lack what drafts for them."""
    from sampling.methods import METHODS

    for name in names:
        needed = METHODS[name].needs(values)
        if needed is not None and not pair.has(needed):
            names = tuple(other for other in names if other != name)
            typer.echo(f"{name} left out: {pair.lack(needed)}", err=True)
    if not names:
        raise UserError("no method is left to run; allowed: --drafter ID, DIR or FILE.gguf, or other --methods")
    return names


def _execute(pair: "Pair", plan: "Plan", as_json: bool, trace_file: TextIO | None) -> bool:
    """Run the plan, write each record as soon as it is known, and say whether any generation failed."""
    from rich.console import Console

    from ablation.results.trace import Tracer
    from ablation.run.execute import execute, warm_up
    from ablation.run.progress import tracked
    from sampling.engine import Engine

    engine, failed = Engine(pair), False
    for _ in warm_up(engine, plan):
        pass
    if trace_file is not None and Path(trace_file.name).is_file():
        trace_file.truncate(0)
    records = tracked(execute(engine, plan, Tracer(trace_file)), plan.generations, Console(stderr=True))
    for record in _printed(records, plan) if as_json else _shown(records, plan):
        failed = failed or record.error is not None
    return failed


def _printed(records: "Iterator[Record]", plan: "Plan") -> "Iterator[Record]":
    for record in records:
        typer.echo(record.to_json())
        yield record


def _shown(records: "Iterator[Record]", plan: "Plan") -> "Iterator[Record]":
    """One table for each turn of a prompt, its rows in the order of the plan."""
    from rich.console import Console

    from ablation.commands.show import show

    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == len(plan.configurations):
            show(Console(), sorted(group, key=lambda r: plan.methods.index(r.method)))
            group = []
        yield record
