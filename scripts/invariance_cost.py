"""What batch invariance costs: forwards of the embedded default with it and without, in turns.

uv run scripts/invariance_cost.py [--formats float32,bfloat16] [--contexts 300,1500], about five minutes
"""

import utils.device.threads  # noqa: F401

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.forward.sharing import SharedRunner
from sampling.loading.pairs import LoadOptions, load_pair
from utils.errors import UserError

SEQUENCES, TURNS, FORWARDS = 16, 9, 10
# Eight drafts: a chain, two lines of four, four lines of two.
CHAIN = tuple(range(-1, 7))
TREES = {"two lines of four": (-1, 0, 1, 2, -1, 4, 5, 6), "four lines of two": (-1, 0, -1, 2, -1, 4, -1, 6)}

Forward = Callable[[], None]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(help=__doc__)
def main(
    formats: Annotated[str, typer.Option(help="Of float32 and bfloat16, between commas.")] = "float32,bfloat16",
    contexts: Annotated[str, typer.Option(help="Tokens that stand before the rows, between commas.")] = "300,1500",
) -> None:
    """Print a row for each format, context and forward: milliseconds without, and how many times as long with."""
    table = Table("format", "context", "forward", "ms", "ratio", "range")
    for dtype in formats.split(","):
        model = load_pair(LoadOptions(device="cpu", dtype=dtype, batch_invariant="on")).target.model
        if not isinstance(model, LeanModel):
            raise UserError(f"{type(model).__name__} has no lean forward")
        sides = model.with_batch_invariance(False), model
        for context in map(int, contexts.split(",")):
            for name, (off, on) in _forwards(*sides, context).items():
                ms, ratio, spread = _ratio(off, on)
                table.add_row(dtype, str(context), name, f"{ms:.1f}", f"{ratio:.3f}", spread)
    Console(width=110).print(table)


def _forwards(off: LeanModel, on: LeanModel, context: int) -> dict[str, tuple[Forward, Forward]]:
    """By name, the two forwards that are compared; a tree is compared with a chain of as many rows, both with it."""
    runners = [_behind(model, context) for model in (off, on)]
    made = {f"{rows} rows": (_chain(runners[0], rows), _chain(runners[1], rows)) for rows in (1, 5, 9)}
    made[f"{SEQUENCES} texts, a row each"] = _texts(off, context), _texts(on, context)
    chain = _tree(runners[1], CHAIN)
    return made | {f"{name} / chain": (chain, _tree(runners[1], parents)) for name, parents in TREES.items()}


def _behind(model: LeanModel, context: int) -> ModelRunner:
    runner = ModelRunner(model)
    prefill(runner, _text(context))
    return runner


def _text(context: int) -> list[int]:
    return [(7 * place) % 1000 for place in range(context)]


def _chain(runner: ModelRunner, rows: int) -> Forward:
    def forward() -> None:
        length = runner.length
        runner.forward(range(1, rows + 1))
        runner.crop(length)

    return forward


def _tree(runner: ModelRunner, parents: tuple[int, ...]) -> Forward:
    def forward() -> None:
        length = runner.length
        runner.forward(range(1, len(parents) + 2), parents)
        runner.crop(length)

    return forward


def _texts(model: LeanModel, context: int) -> Forward:
    shared = SharedRunner(model)
    slots = [shared.another() for _ in range(SEQUENCES)]
    for place, slot in enumerate(slots):
        prefill(slot, _text(context - place))

    def forward() -> None:
        lengths = [slot.length for slot in slots]
        shared.run([slot.feed([1]) for slot in slots])
        for slot, length in zip(slots, lengths, strict=True):
            slot.crop(length)

    return forward


def _ratio(off: Forward, on: Forward) -> tuple[float, float, str]:
    """Milliseconds of the first, how many times as long the second takes, and from where to where: turn by turn."""
    times = [(_seconds(off), _seconds(on)) for _ in range(TURNS)]
    ratios = [with_it / without for without, with_it in times]
    return median(without for without, _ in times) * 1000, median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"


def _seconds(forward: Forward) -> float:
    """The median of some."""
    taken = []
    for _ in range(FORWARDS):
        begun = perf_counter()
        forward()
        taken.append(perf_counter() - begun)
    return median(taken)


if __name__ == "__main__":
    app()
