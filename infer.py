"""The entry point: an interactive session by default, other tasks as subcommands."""

import utils.device.threads  # noqa: F401

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.ablate import EXAMPLES, ablate
from ablation.commands.acceptance import EXAMPLES as ACCEPTANCE_EXAMPLES
from ablation.commands.cli import (
    acceptance,
    advise,
    audit,
    invariance,
    methods,
    prefill,
    profile,
    quality,
    run,
    selftest,
)
from ablation.commands.run import Grammar, Length, Processor, Runs, Seed
from ablation.commands.shared.checked import CheckedCommand, CheckedGroup
from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import exit_statuses
from sampling.loading.options import LoadOptions, load_options
from sampling.methods.chat_template import TemplateOptions
from serve.command import serve
from utils.device.torchrun import one_voice, refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values
from utils.provenance import PROJECT, project_version

if TYPE_CHECKING:
    from repl.session import Session
    from sampling.loading.pairs import Progress
    from sampling.pair.pair import Pair


app = typer.Typer(cls=CheckedGroup, add_completion=False, pretty_exceptions_enable=False)


def _load(options: LoadOptions, progress: "Progress") -> "Pair":
    from sampling.loading.pairs import load_pair

    return load_pair(options, progress)


@app.callback(invoke_without_command=True)
@opened(models=LoadOptions, told=TemplateOptions)
def session(
    context: typer.Context,
    *,
    models: Values,
    methods: Runs = None,
    length: Length = None,
    processor: Processor = None,
    seed: Seed = None,
    grammar: Grammar = None,
    told: Values,
    version: Annotated[bool, typer.Option("--version", help="Print the version, then exit.")] = False,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play a script of session commands, then exit.")
    ] = None,
) -> None:
    """Speculative decoding side by side. Without a command: an interactive session."""
    command = context.invoked_subcommand
    if version:
        typer.echo(f"{PROJECT} {project_version()}")
        raise typer.Exit
    settings = {"length": length, "processor": processor, "seed": seed, "grammar": grammar}
    own = {"methods": methods, **settings, **told, "script": script}
    with exit_statuses():
        given = [*models, *(name for name, value in own.items() if value is not None)]
        if command is not None and given:
            name = given[0].replace("_", "-")
            raise UserError(
                f"--{name} given before {command}; expected after it, as in `infer.py {command} --{name} ...`"
            )
        if command is not None:
            return
        refuse_under_torchrun("the interactive session", "a command, such as `infer.py run`")
        session = _session(load_options(models), methods, {**settings, **told})
    from repl.app import main

    raise typer.Exit(main(session, script))


@opened(models=LoadOptions)
def demo(*, models: Values) -> None:
    """A demonstration of two minutes: prompts for copies, a trained head and auto, then the time per token."""
    with exit_statuses():
        refuse_under_torchrun("the demonstration", "a command, such as `infer.py run`")
        session = _session(load_options(models), None, {})
    from repl.app import main

    raise typer.Exit(main(session, demo=True))


def _session(options: LoadOptions, methods: str | None, asked: Mapping[str, object]) -> "Session":
    """A session with the settings and the methods of the command line. Raises `UserError`."""
    from ablation.plan.choice import choose_runs
    from repl.loading import Loading
    from repl.session import Session

    session = Session(Loading(_load, options))
    session.choose(
        {name: str(value) for name, value in asked.items() if value is not None},
        choose_runs(methods, session.settings) if methods is not None else (),
    )
    return session


app.command(cls=CheckedCommand)(demo)
app.command(cls=CheckedCommand)(run)
app.command(cls=CheckedCommand, epilog=EXAMPLES)(ablate)
app.command(cls=CheckedCommand)(selftest)
app.command(cls=CheckedCommand)(invariance)
app.command(cls=CheckedCommand)(audit)
app.command(cls=CheckedCommand)(quality)
app.command(cls=CheckedCommand)(profile)
app.command(cls=CheckedCommand)(advise)
app.command(cls=CheckedCommand, epilog=ACCEPTANCE_EXAMPLES)(acceptance)
app.command(cls=CheckedCommand)(methods)
app.command(cls=CheckedCommand)(prefill)
app.command(cls=CheckedCommand)(serve)


def main() -> None:
    """The command of an installed wheel; under torchrun only one process prints."""
    with one_voice():
        app()


if __name__ == "__main__":
    main()
