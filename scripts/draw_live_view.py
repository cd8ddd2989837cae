"""Draws the picture of the live view in the README: a real run of the embedded default, caught half-way.

uv run scripts/draw_live_view.py docs/live-view.svg
"""

import utils.threads  # noqa: F401

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from sampling.measure.comparison import Comparison
    from sampling.pair_engine import PairEngine
    from sampling.settings import Settings

PROMPT = "Why do leaves change colour in autumn?"
SHOWN = "speculative"


def main(
    out: Annotated[Path, typer.Argument(help="the SVG file to write")],
    prompt: Annotated[str, typer.Option(help="what is asked")] = PROMPT,
    rounds: Annotated[int, typer.Option(help="round in which the picture is taken, or the next with a rejection")] = 9,
    length: Annotated[int, typer.Option(help="new tokens of the runs behind the table")] = 64,
) -> None:
    """Run every method that starts switched on and EGAG, and save the view of speculative decoding and the table."""
    from sampling.loading.pairs import LoadOptions, load_pair
    from sampling.pair_engine import PairEngine
    from sampling.settings import Settings

    settings = Settings()
    settings.assign("egag", "on")
    settings.assign("length", str(length))
    console = Console(record=True, width=100, file=sys.stderr, force_terminal=True, highlight=False)
    console.print(Text.assemble(("> ", "bold"), prompt))
    draw(console, PairEngine(load_pair(LoadOptions())), settings, prompt, rounds)
    console.save_svg(str(out), title="uv run infer.py")


def draw(console: Console, engine: "PairEngine", settings: "Settings", prompt: str, rounds: int) -> None:
    """Every method in turn, the view of one of them at this round, and the table of all."""
    from repl import tables
    from sampling.measure.comparison import Comparison

    ids = engine.pair.encode([prompt], chat=True)
    warm, comparison = (Comparison(engine, settings, ids) for _ in range(2))
    names = settings.enabled()
    for name in names:
        for _ in warm.run(name):
            pass
        if name == SHOWN:
            _watch(console, comparison, rounds)
        else:
            for _ in comparison.run(name):
                pass
    verdicts = {name: comparison.divergence(name) for name in names}
    console.print(tables.comparison_table(tables.rows(comparison, names, verdicts), console))


def _watch(console: Console, comparison: "Comparison", rounds: int) -> None:
    """Run to the end, and print the view as it is in that round, or in the next with a rejection."""
    from repl.answer import Answer
    from repl.live import coloured, numbers
    from sampling.events import Step
    from sampling.methods import METHODS

    answer, printed = Answer(comparison.engine.pair.decode), False
    for event, account in comparison.run(SHOWN):
        if not isinstance(event, Step):
            continue
        answer.add(event)
        if not printed and account.rounds >= rounds and event.rejected is not None:
            printed = True
            console.print(coloured(answer))
            facts = " · ".join(numbers(account, event))
            console.print(Text.assemble((METHODS[SHOWN].title, "bold"), "  ", (facts, "dim")), end="\n\n")


if __name__ == "__main__":
    typer.run(main)
