"""The command `advise`: what pays on a user's own prompts. What is slow to import waits for a right call."""

import json as json_module
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import (
    Json,
    exit_statuses,
    load_chosen,
    out_console,
)
from ablation.commands.shared.written import command_line, plan_text, server_config
from sampling.loading.options import LoadOptions, load_options
from sampling.methods.chat_template import TemplateOptions
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values
from utils.text import shown

if TYPE_CHECKING:
    from ablation.advise.advice import Advice
    from ablation.advise.choose import ExpectedSpeedup
    from ablation.plan.grid import Configuration
    from ablation.plan.prompts.file import Prompt
    from sampling.methods.settings import Settings
    from sampling.pair.pair import Pair

_SHOWN = 8


@opened(models=LoadOptions, told=TemplateOptions)
def advise(
    *,
    prompts: Annotated[
        list[str] | None,
        typer.Option(metavar="SET|FILE", help="A built-in set or a file of prompts like yours; repeatable."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0, help="Maximum time of the measurement in minutes.")] = 5.0,
    length: Annotated[
        int, typer.Option(min=1, help="Maximum number of new tokens, for prompts without their own.")
    ] = 100,
    told: Values,
    models: Values,
    json: Json = False,
) -> None:
    """Recommend what to draft with on prompts like yours, greedy, or not to speculate.

    Half of the prompts are measured, rules and lengths are replayed on them; the other half checks the best by
    decoding, interleaved with plain decoding.

    Exit status: 0 advice; 1 nothing could be measured; 2 the call is wrong; 130 stopped by Ctrl-C, which advises from
    what there is (a second one stops a generation too).
    """
    from ablation.plan.prompts.sets import find_sources, gather
    from sampling.methods.settings import Settings

    with exit_statuses():
        refuse_under_torchrun("advise", "one process, or the command run")
        if not prompts:
            raise UserError("--prompts: nothing given; expected a built-in set or a file of prompts like yours")
        played = gather(find_sources(prompts, Path.cwd()))
        load_options(models)
        asked = {"length": str(length), **told}
        settings = Settings()
        settings.assign_all(asked.items())
        advice = _measured(load_chosen(models), played, settings, minutes)
        forms = _Forms(prompts, models, asked)
        typer.echo(json_module.dumps(facts(advice, forms))) if json else _show(advice, forms)
        if advice.stopped:
            raise KeyboardInterrupt
    raise typer.Exit(0 if advice.sampled else 1)


def _measured(pair: "Pair", prompts: "Sequence[Prompt]", settings: "Settings", minutes: float) -> "Advice":
    from ablation.advise.advice import advise as found
    from ablation.run.progress.bar import told
    from sampling.pair.pair_engine import PairEngine
    from utils.device.machine import Machine, disturbance

    with Machine() as machine, told("prompts") as tell:
        advice = found(PairEngine(pair), prompts, settings, minutes, tell)
    if disturbed := disturbance([machine.other_cores]):
        typer.echo(disturbed, err=True)
    return advice


class _Forms:
    """A configuration in the forms that others read, for the same prompts and models."""

    def __init__(self, prompts: Sequence[str], models: Mapping[str, Any], settings: Mapping[str, str]) -> None:
        self.prompts, self.models, self.settings = prompts, models, settings

    def command(self, configuration: "Configuration") -> str:
        """The command line; it takes one file, the plan takes all."""
        path = self._files()[0]
        near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return command_line(configuration, str(near), self.models, self.settings)

    @property
    def more(self) -> bool:
        """Whether there are files of prompts that the command leaves out."""
        return len(self._files()) > 1

    def _files(self) -> list[Path]:
        from ablation.plan.prompts.sets import find_sources

        return list(find_sources(self.prompts, Path.cwd()))

    def plan(self, configuration: "Configuration") -> str:
        """The plan."""
        return plan_text(configuration, self.prompts, self.models, self.settings)

    def server(self, configuration: "Configuration") -> str | None:
        """The servers' JSON."""
        return server_config(configuration, self.models)

    def best_for_servers(self, advice: "Advice") -> "tuple[Configuration, float] | None":
        """The best candidate that servers have words for, with its speedup on the sample, where it is not below 1."""
        known = (pair for pair in advice.candidates if pair[1] > 1.0 and self.server(pair[0]) is not None)
        return next(known, None)


def facts(advice: "Advice", forms: _Forms) -> dict[str, Any]:
    """The advice as one JSON object; unknown is null."""
    server, instead = forms.server(advice.final), None
    if server is None and (server_best := forms.best_for_servers(advice)):
        instead = {
            "configuration": server_best[0].name,
            "speedup": server_best[1],
            "speculative_config": forms.server(server_best[0]),
        }
    return {
        "speculate": advice.speculate if advice.sampled else None,
        "configuration": advice.final.name if advice.sampled else None,
        "best": advice.best and advice.best.name,
        "expected": _numbers(advice.best.expected if advice.best else None),
        "measured": _numbers(advice.measured),
        "contradicted": advice.contradicted,
        "command": forms.command(advice.final),
        "speculative_config": server,
        "for_servers": instead,
        "plan": forms.plan(advice.final),
        "candidates": [
            {"configuration": configuration.name, "speedup": ratio} for configuration, ratio in advice.candidates
        ],
        "bounds": [{"configuration": name, "speedup": ratio} for name, ratio in advice.bounds],
        "sampled": advice.sampled,
        "length": advice.length,
        "notes": advice.notes,
        "stopped": advice.stopped,
    }


def _numbers(expected: "ExpectedSpeedup | None") -> dict[str, float | int | None] | None:
    if expected is None:
        return None
    low, high = (None if value != value else value for value in (expected.low, expected.high))
    return {"speedup": expected.ratio, "low": low, "high": high, "prompts": expected.prompts}


def _show(advice: "Advice", forms: _Forms) -> None:
    from rich.text import Text

    console = out_console()
    if advice.candidates:
        console.print(_table(advice))
    for note in advice.notes:
        console.print(Text(shown(note), "dim"), soft_wrap=True)
    if advice.best is None:
        console.print(Text("do not speculate" if advice.sampled else "no advice", "bold"))
        return
    console.print(Text(verdict(advice), "bold"), soft_wrap=True)
    console.print(Text(f"\n{forms.command(advice.final)}\n"), soft_wrap=True)
    if forms.more:
        console.print(Text("the command runs the first prompt file only; the plan has all", "dim"))
    console.print(Text(_for_servers(advice, forms)), soft_wrap=True)
    console.print(
        Text(f"\nas a plan (scripts/run_ablation.py FILE.toml):\n\n{forms.plan(advice.final)}"), soft_wrap=True
    )


def verdict(advice: "Advice") -> str:
    """What to do, with what was expected and what was measured."""
    assert advice.best is not None
    said = f"expected {advice.best.expected}"
    if advice.measured is not None:
        said += f", measured {advice.measured} held out"
    if advice.speculate:
        return f"{advice.best.name}: {said}"
    return f"do not speculate; the best, {advice.best.name}, has no proven speedup: {said}"


def _for_servers(advice: "Advice", forms: _Forms) -> str:
    if (lines := forms.server(advice.final)) is not None:
        return f"for servers: --speculative-config '{lines}'"
    said = f"servers cannot express {advice.final.name}"
    if server_best := forms.best_for_servers(advice):
        best = f"the best that they have, {server_best[1]:.2f} on the sample"
        return f"{said}; {best}: --speculative-config '{forms.server(server_best[0])}'"
    return f"{said}, and no other candidate is faster"


def _table(advice: "Advice") -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table("candidate", "speedup on the sample", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for configuration, ratio in advice.candidates[:_SHOWN]:
        table.add_row(Text(configuration.name), f"{ratio:.2f}")
    for name, ratio in sorted(advice.bounds, key=lambda pair: -pair[1])[:_SHOWN]:
        table.add_row(Text(f"bound: oracle of {name}", "dim"), Text(f"{ratio:.2f}", "dim"))
    return table
