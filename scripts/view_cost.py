"""What the live view costs a user: the share of a generation's wall time that the view holds, and the ratio of
wall times with and without it, interleaved.

The share is steady on a busy machine; the ratio is not. Run it in a terminal, whose drawing then counts too:
    uv run scripts/view_cost.py --method speculative --length 128 --repeat 5
"""

import utils.device.threads  # noqa: F401

import statistics
import sys
import time
from typing import Annotated

import typer
from rich.console import Console

from repl.screen.live import LiveView
from sampling.loading.options import DTYPES
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure.answer import Answer
from sampling.measure.comparison import Comparison
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from sampling.pair.pair_engine import PairEngine
from utils.device.machine import Machine, disturbance

PROMPT = "Explain how a river shapes the land it flows through."


def main(
    target: Annotated[str | None, typer.Option(help="hub id, folder or FILE.gguf")] = None,
    drafter: Annotated[str | None, typer.Option(help="hub id, folder or FILE.gguf")] = None,
    dtype: Annotated[str, typer.Option(help=", ".join(DTYPES))] = "auto",
    method: Annotated[str, typer.Option(help="whose generation is watched")] = AR,
    length: Annotated[int, typer.Option(help="new tokens a run")] = 128,
    repeat: Annotated[int, typer.Option(min=1, help="pairs of runs, with and without the view")] = 5,
) -> None:
    """The share of a generation's wall time that the live view holds, and the ratio with and without it."""
    pair = load_pair(LoadOptions(target, drafter, dtype=dtype))
    settings = Settings()
    settings.assign("length", str(length))
    comparison = Comparison(PairEngine(pair), settings, pair.encode([PROMPT], chat=True))
    view = LiveView(Console(force_terminal=True))

    def bare() -> float:
        start = time.perf_counter()
        for _ in comparison.run(method):
            pass
        return time.perf_counter() - start

    engine_s: list[float] = []

    def shown() -> float:
        start = time.perf_counter()
        view.watch(method, comparison.run(method), Answer(pair.decode), None)
        engine_s.append(comparison.metrics[method].wall_s)
        return time.perf_counter() - start

    bare(), shown()  # warm
    engine_s.clear()
    with Machine() as machine:
        pairs = [(bare(), shown()) if i % 2 else (shown(), bare())[::-1] for i in range(repeat)]
    shares = [1 - inside / with_view for inside, (_, with_view) in zip(engine_s, pairs, strict=True)]
    _tell(method, pairs, shares)
    if disturbed := disturbance([machine.other_cores]):
        print(disturbed, file=sys.stderr)


def _tell(method: str, pairs: list[tuple[float, float]], shares: list[float]) -> None:
    """pairs: seconds without and with the view. shares: of the wall time, outside the engine's clock."""
    ratios = [with_view / without for without, with_view in pairs]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    seconds = statistics.median(without for without, _ in pairs)
    result = f"with / without view: median {statistics.median(ratios):.3f} ({spread}), {len(pairs)} pairs"
    print(f"{method}: {result} of {seconds:.2f} s", file=sys.stderr)
    print(f"outside the engine's clock: median {statistics.median(shares):.2%} of the wall time", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
