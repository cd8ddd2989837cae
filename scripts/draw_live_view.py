"""Draws the picture of the live view in the README: a real run of the embedded default, caught half-way.

uv run scripts/draw_live_view.py docs/live-view.svg
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

PROMPT = "Why do leaves change colour in autumn?"


def main(
    out: Annotated[Path, typer.Argument(help="the SVG file to write")],
    prompt: Annotated[str, typer.Option(help="what is asked")] = PROMPT,
    rounds: Annotated[int, typer.Option(help="round in which the picture is taken, or the next with a rejection")] = 9,
    length: Annotated[int, typer.Option(help="new tokens of the runs behind the table")] = 64,
) -> None:
    """Run every method that starts switched on and EGAG, and save the view of speculative decoding and the table."""
    from rich.console import Console
    from rich.text import Text

    from repl import tables
    from repl.answer import Answer
    from repl.live import coloured, numbers
    from sampling.engine import Engine
    from sampling.events import Step
    from sampling.loading.pairs import LoadOptions, load_pair
    from sampling.measure.comparison import Comparison
    from sampling.methods import METHODS
    from sampling.settings import Settings

    settings = Settings()
    settings.assign("egag", "on")
    settings.assign("length", str(length))
    pair = load_pair(LoadOptions())
    engine = Engine(pair)
    ids = pair.encode([prompt], chat=True)
    warm, comparison = (Comparison(engine, settings, ids) for _ in range(2))
    console = Console(record=True, width=100, file=sys.stderr, force_terminal=True, highlight=False)
    console.print(Text.assemble(("> ", "bold"), prompt))
    for name in settings.enabled():
        for _ in warm.run(name):
            pass
        answer, shown = Answer(pair.decode), name != "speculative"
        for event, account in comparison.run(name):
            if not isinstance(event, Step):
                continue
            answer.add(event)
            if not shown and account.rounds >= rounds and event.rejected is not None:
                shown = True
                console.print(coloured(answer))
                facts = " · ".join(numbers(account, event))
                console.print(Text.assemble((METHODS[name].title, "bold"), "  ", (facts, "dim")), end="\n\n")
    names = settings.enabled()
    verdicts = {name: comparison.divergence(name) for name in names}
    console.print(tables.comparison_table(tables.rows(comparison, names, verdicts), console))
    console.save_svg(str(out), title="uv run infer.py")


if __name__ == "__main__":
    typer.run(main)
