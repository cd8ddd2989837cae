"""Options that the commands share, and the exit statuses they keep."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sampling.loading.options import load_options
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values
from utils.text import printable, shown

if TYPE_CHECKING:
    from rich.console import Console

    from ablation.plan.grid import Configuration
    from sampling.pair.pair import Pair

Methods = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Methods to run; default: the methods that are on.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line on stdout, and nothing else.")]


_PIPE_WIDTH = 120


@contextmanager
def exit_statuses() -> Iterator[None]:
    """A wrong call ends with 2 and its message on stderr, Ctrl-C with 130.

    Output that cannot be written ends with 1: silently where the reader has left (`| head`), else with the
    reason, such as a full disk.
    """
    try:
        yield
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        typer.echo(printable(f"error: {shown(error.filename or 'output')}: {error.strerror or error}"), err=True)
        raise typer.Exit(1) from None


def out_console() -> "Console":
    """stdout; where it is no terminal there is no edge to break a table at."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)


class PrintProgress:
    """Loading's progress as lines on stderr: each message once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, message: str, fraction: float | None = None) -> None:
        if message != self._last:
            self._last = message
            typer.echo(message, err=True)


def refuse_for_several(batches: Sequence[int], engines: Sequence[object], formats: Sequence[str]) -> None:
    """Raise `UserError` for what a model over several processes does not play, where torchrun started them."""
    for what, value in (("--batch", batches), ("--engine", engines), ("several --target-weights", formats)):
        if value:
            refuse_under_torchrun(what, "a plan without, or one process")


def load_chosen(chosen: Values, runs: "Sequence[Configuration]" = (), values: Values | None = None) -> "Pair":
    """Load the models that the options given ask for; what was mended goes to stderr. Raises `UserError`.

    runs: what is asked of them, with these settings; what it lacks is refused before weights are read.
    """
    options = load_options(chosen)
    from sampling.loading.pairs import load_pair
    from sampling.loading.refusals.lacking import refuse_lacking
    from sampling.methods.tables import METHODS

    settings = values or {}
    refuse_lacking(options, (METHODS[run.method].needs({**settings, **dict(run.parameters)}) for run in runs))

    pair = load_pair(options, PrintProgress())
    for note in pair.notes:
        typer.echo(note, err=True)
    return pair
