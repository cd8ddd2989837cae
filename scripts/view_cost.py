"""What the live view costs a user: the share of a generation's wall time that the view holds, and the ratio of
wall times with and without it, interleaved.

The share is steady on a busy machine; the ratio is not. Run it in a terminal, whose drawing then counts too:
    python scripts/view_cost.py --method speculative --length 128 --repeat 5
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console

from repl.answer import Answer
from repl.live import LiveView
from sampling.comparison import Comparison
from sampling.engine import Engine
from sampling.models import LoadOptions, load_pair
from sampling.settings import Settings

PROMPT = "Explain how a river shapes the land it flows through."


def main() -> None:
    arguments = _arguments()
    pair = load_pair(LoadOptions(arguments.target, arguments.drafter, dtype=arguments.dtype))
    settings = Settings()
    settings.assign("length", str(arguments.length))
    comparison = Comparison(Engine(pair), settings, pair.encode([PROMPT], chat=True))
    view = LiveView(Console(force_terminal=True))

    def bare() -> float:
        start = time.perf_counter()
        for _ in comparison.run(arguments.method):
            pass
        return time.perf_counter() - start

    engine_s: list[float] = []

    def shown() -> float:
        start = time.perf_counter()
        view.watch(arguments.method, comparison.run(arguments.method), Answer(pair.decode), None)
        engine_s.append(comparison.metrics[arguments.method].wall_s)
        return time.perf_counter() - start

    bare(), shown()  # warm
    engine_s.clear()
    pairs = [(bare(), shown()) if i % 2 else (shown(), bare())[::-1] for i in range(arguments.repeat)]
    shares = [1 - inside / with_view for inside, (_, with_view) in zip(engine_s, pairs, strict=True)]
    ratios = [with_view / without for without, with_view in pairs]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    seconds = statistics.median(without for without, _ in pairs)
    result = f"with / without view: median {statistics.median(ratios):.3f} ({spread}), {arguments.repeat} pairs"
    print(f"{arguments.method}: {result} of {seconds:.2f} s", file=sys.stderr)
    print(f"outside the engine's clock: median {statistics.median(shares):.2%} of the wall time", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target")
    parser.add_argument("--drafter")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--method", default="target")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
