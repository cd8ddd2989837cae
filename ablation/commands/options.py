"""Options that the commands share, and the exit statuses they keep."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utils.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from sampling.pair import Pair

Target = Annotated[
    str | None, typer.Option(metavar="ID|DIR|FILE.gguf", help="Target model; default: the embedded one.")
]
Drafter = Annotated[str | None, typer.Option(metavar="ID|DIR|FILE.gguf", help="Drafter model.")]
Heads = Annotated[str | None, typer.Option(metavar="DIR,...", help="Trained heads, beside those in models/.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
DrafterDevice = Annotated[str | None, typer.Option(help="The drafter's device, if another.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that a model repository brings.")]
Methods = Annotated[str | None, typer.Option(metavar="NAME,...", help="Methods to run; default: those that are on.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout, nothing else there.")]


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
        typer.echo(f"error: {error.filename or 'output'}: {error.strerror or error}", err=True)
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


def load(options: Mapping[str, Any]) -> "Pair":
    """Load the models that options by name ask for, missing ones at their defaults; what was mended goes to stderr."""
    from sampling.loading.pairs import LoadOptions, load_pair

    pair = load_pair(LoadOptions(**options), PrintProgress())
    for note in pair.notes:
        typer.echo(note, err=True)
    return pair
