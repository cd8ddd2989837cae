"""The entry point: an interactive session by default, other jobs as subcommands."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.cli import methods, run, selftest

if TYPE_CHECKING:
    from sampling.loading.pairs import Progress
    from sampling.pair import Pair


class DType(StrEnum):
    """Numbers a model computes with."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _load(options: dict[str, object], progress: "Progress") -> "Pair":
    from sampling.loading.pairs import LoadOptions, load_pair

    return load_pair(LoadOptions(**options), progress)  # type: ignore[arg-type]


@app.callback(invoke_without_command=True)
def session(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps")] = "auto",
    dtype: Annotated[DType, typer.Option()] = DType.auto,
    target: Annotated[str | None, typer.Option(help="hub id, folder or FILE.gguf; default: the embedded model")] = None,
    drafter: Annotated[str | None, typer.Option(help="hub id, folder or FILE.gguf")] = None,
    drafter_device: Annotated[str | None, typer.Option(help="where it differs from --device")] = None,
    heads: Annotated[str | None, typer.Option(metavar="DIR,...", help="trained heads, beside those in models/")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code from the model's repo")
    ] = False,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="play a script of session commands, then end")
    ] = None,
) -> None:
    """Speculative decoding side by side. Without a command: an interactive session."""
    if context.invoked_subcommand is not None:
        return
    from repl.app import main

    options = {
        "target": target,
        "drafter": drafter,
        "device": device,
        "drafter_device": drafter_device,
        "dtype": dtype.value,
        "trust_remote_code": trust_remote_code,
        "heads": heads,
    }
    raise typer.Exit(main(partial(_load, options), script))


app.command()(run)
app.command()(selftest)
app.command()(methods)

if __name__ == "__main__":
    app()
