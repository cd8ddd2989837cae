"""The entry point: an interactive session by default, other jobs as subcommands."""

import utils.threads  # noqa: F401

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.cli import methods, run, selftest
from ablation.commands.opened import opened
from ablation.commands.options import exit_statuses
from sampling.loading.options import LoadOptions, load_options
from utils.parameter import Values

if TYPE_CHECKING:
    from sampling.loading.pairs import Progress
    from sampling.pair import Pair


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _load(options: LoadOptions, progress: "Progress") -> "Pair":
    from sampling.loading.pairs import load_pair

    return load_pair(options, progress)


@app.callback(invoke_without_command=True)
@opened(models=LoadOptions)
def session(
    context: typer.Context,
    *,
    models: Values,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play a script of session commands, then exit.")
    ] = None,
) -> None:
    """Speculative decoding side by side. Without a command: an interactive session."""
    if context.invoked_subcommand is not None:
        return
    from repl.app import main

    with exit_statuses():
        options = load_options(models)
    raise typer.Exit(main(partial(_load, options), script))


app.command()(run)
app.command()(selftest)
app.command()(methods)

if __name__ == "__main__":
    app()
