"""Draws the picture of the live view in the README: a real run of the embedded default, caught half-way.

uv run scripts/draw_live_view.py docs/live-view.svg
"""

import utils.device.threads  # noqa: F401

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from repl.answers import Answers
    from repl.session import Session
    from sampling.measure.answer import Decode

PROMPT = "Why do leaves change colour in autumn?"
SHOWN = "speculative"


def main(
    out: Annotated[Path, typer.Argument(help="the SVG file to write")],
    prompt: Annotated[str, typer.Option(help="what is asked")] = PROMPT,
    rounds: Annotated[int, typer.Option(help="round in which the picture is taken, or the next with a rejection")] = 9,
    length: Annotated[int, typer.Option(help="new tokens of the runs behind the table")] = 64,
) -> None:
    """Run what a session begins with, and save the view of speculative decoding and the table."""
    from repl.loading import Loading
    from repl.session import Session
    from sampling.loading.pairs import load_pair

    session = Session(Loading(load_pair))
    session.assign("length", str(length))
    session.loading.start()
    console = Console(record=True, width=100, file=sys.stderr, force_terminal=True, highlight=False)
    console.print(Text.assemble(("> ", "bold"), prompt))
    draw(console, session, prompt, rounds)
    console.save_svg(str(out), title="uv run infer.py")


def draw(console: Console, session: "Session", prompt: str, rounds: int) -> None:
    """Every run in turn, the view of one of them at this round, and the table of all."""
    from repl.screen import tables

    warm, answers = (session.ask(prompt) for _ in range(2))
    for name in answers.runs:
        for _ in warm.run(name):
            pass
        session.engine.forget()
        if name == SHOWN:
            _watch(console, answers, session.engine.text, rounds)
        else:
            for _ in answers.run(name):
                pass
    rows = tables.rows(answers.comparison, answers.finished(), answers.verdicts(), answers.runs)
    console.print(tables.comparison_table(rows, console))


def _watch(console: Console, answers: "Answers", decode: "Decode", rounds: int) -> None:
    """Run to the end, and print the view as it is in that round, or in the next with a rejection."""
    from repl.screen.live import coloured, numbers
    from sampling.measure.answer import Answer
    from utils.events import Round

    answer, printed = Answer(decode), False
    for event, account in answers.run(SHOWN):
        if not isinstance(event, Round):
            continue
        answer.add(event)
        if not printed and account.rounds >= rounds and event.rejected is not None:
            printed = True
            console.print(coloured(answer))
            facts = " · ".join(numbers(account, event))
            console.print(Text.assemble((answers.title(SHOWN), "bold"), "  ", (facts, "dim")), end="\n\n")


if __name__ == "__main__":
    typer.run(main)
