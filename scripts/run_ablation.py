"""Run a grid of methods over prompts into a CSV file with a report: `uv run scripts/run_ablation.py --help`."""

import utils.device.threads  # noqa: F401

import typer

from ablation.commands.ablate import EXAMPLES, ablate
from ablation.commands.shared.checked import CheckedCommand
from utils.device.torchrun import one_voice

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=CheckedCommand, epilog=EXAMPLES)(ablate)

if __name__ == "__main__":
    with one_voice():
        app()
