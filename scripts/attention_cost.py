"""What attention costs: forwards of the embedded default with our kernel and with torch's attention, in turns.

uv run scripts/attention_cost.py [--formats float32,int8,int4] [--contexts 300], some minutes a format
uv run scripts/attention_cost.py --invariance --formats float32,bfloat16: with batch invariance and without, by torch's
"""

import utils.device.threads  # noqa: F401

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Annotated, NamedTuple

import typer

from sampling.forward.cpp.library import use_own_kernels
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.forward.sharing import SharedRunner
from sampling.loading.options import WEIGHTS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair.pair_engine import PairEngine
from utils.errors import UserError

SEQUENCES, TURNS, FORWARDS = 16, 9, 10
_LINE = "{:10}{:>8}  {:28}{:>8}{:>8}  {}"
# Eight drafts: a chain, two lines of four, four lines of two.
CHAIN = tuple(range(-1, 7))
TREES = {"two lines of four": (-1, 0, 1, 2, -1, 4, 5, 6), "four lines of two": (-1, 0, -1, 2, -1, 4, -1, 6)}

Forward = Callable[[], None]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Side(NamedTuple):
    """A model, and whether its rows attend by our kernel."""

    model: LeanModel
    own: bool

    def made(self) -> LeanModel:
        """The model; caches that are made next attend so."""
        use_own_kernels(self.own)
        return self.model


@app.command(help=__doc__)
def main(
    formats: Annotated[str, typer.Option(help="Number formats, between commas.")] = "float32,int8,int4",
    contexts: Annotated[str, typer.Option(help="Tokens that stand before the rows, between commas.")] = "300",
    invariance: Annotated[bool, typer.Option("--invariance", help="Compare batch invariance instead.")] = False,
) -> None:
    """Print a row for each format, context and forward: milliseconds without, and how many times as long with."""
    print(_LINE.format("format", "context", "forward", "ms", "ratio", "range"))
    for name in formats.split(","):
        model = _model(name, "on" if invariance else "auto")
        off = Side(model.with_batch_invariance(False) if invariance else model, own=False)
        on = Side(model, own=not invariance)
        for context in map(int, contexts.split(",")):
            for forward, both in _forwards(off, on, context).items():
                ms, ratio, spread = _ratio(*both)
                print(_LINE.format(name, context, forward, f"{ms:.1f}", f"{ratio:.3f}", spread), flush=True)


def _model(name: str, batch_invariant: str) -> LeanModel:
    weights, dtype = (name, "float32") if name in WEIGHTS else ("full", name)
    options = LoadOptions(device="cpu", dtype=dtype, target_weights=weights, batch_invariant=batch_invariant)
    model = PairEngine(load_pair(options)).in_format(weights).pair.target.model
    if not isinstance(model, LeanModel):
        raise UserError(f"{type(model).__name__} has no lean forward")
    return model


def _forwards(off: Side, on: Side, context: int) -> dict[str, tuple[Forward, Forward]]:
    """By name, the two forwards that are compared."""
    runners = [_behind(side.made(), context) for side in (off, on)]
    made = {f"{rows} rows": (_chain(runners[0], rows), _chain(runners[1], rows)) for rows in (1, 5, 9, 17)}
    trees = {"a chain of eight drafts": CHAIN, **TREES}
    made |= {name: (_tree(runners[0], parents), _tree(runners[1], parents)) for name, parents in trees.items()}
    made[f"{SEQUENCES} texts, a row each"] = _texts(off.made(), context), _texts(on.made(), context)
    uneven = _texts(off.made(), context, uneven=True), _texts(on.made(), context, uneven=True)
    return made | {f"{SEQUENCES} texts, from short to this": uneven}


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


def _texts(model: LeanModel, context: int, uneven: bool = False) -> Forward:
    shared = SharedRunner(model)
    slots = [shared.another() for _ in range(SEQUENCES)]
    for place, slot in enumerate(slots):
        prefill(slot, _text(context * (place + 1) // SEQUENCES if uneven else context - place))

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
