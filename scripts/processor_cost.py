"""What the options of a processor cost a round.

Two texts of one model take turns, round by round: one with the options, one without. So whatever else the machine does
falls on both. The last line compares a processor with itself, and shows the noise.

uv run scripts/processor_cost.py [--target-weights int8] [--method mtp] [--length 96] [--repeat 4]
"""

import utils.device.threads  # noqa: F401

import statistics
import sys
from collections.abc import Generator
from typing import Annotated

import typer

from sampling.loading.options import DTYPES, WEIGHTS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from sampling.pair.pair_engine import PairEngine
from utils.device.machine import Machine, disturbance
from utils.events import Round
from utils.numbers.intervals import median_interval

PROMPT = "Write a Python function that merges two sorted lists, with a docstring, and explain how it works."
CASES = (
    ("greedy", "repetition=1.1 frequency=0.2 presence=0.2"),
    ("nucleus 0.8 0.9", "repetition=1.1 frequency=0.2 min_p=0.05"),
    ("greedy", ""),
)


def round_times(engine: PairEngine, method: str, prompt: list[int], **settings: object) -> Generator[float]:
    """Seconds of each round."""
    values = Settings()
    for name, value in settings.items():
        values.assign(name, str(value))
    for event in engine.stream(method, values, prompt):
        if isinstance(event, Round):
            yield event.draft_s + event.verify_s + event.other_s


def main(
    dtype: Annotated[str, typer.Option(help=", ".join(DTYPES))] = "auto",
    target_weights: Annotated[str, typer.Option(help=", ".join(WEIGHTS))] = "full",
    method: Annotated[str, typer.Option(help="whose rounds")] = AR,
    length: Annotated[int, typer.Option(min=2, help="new tokens of a text")] = 96,
    repeat: Annotated[int, typer.Option(min=1, help="texts of each processor")] = 4,
) -> None:
    """What the options of a processor cost a round."""
    pair = load_pair(LoadOptions(dtype=dtype, target_weights=target_weights))
    prompt, engines = pair.encode([PROMPT], chat=True), (PairEngine(pair), PairEngine(pair.fresh()))
    with Machine() as machine:
        for plain, options in CASES:
            rounds: list[tuple[float, float]] = []
            for number in range(repeat + 1):
                first, second = engines if number % 2 else engines[::-1]
                same = {"length": length, "seed": number}
                without = round_times(first, method, prompt, processor=plain, **same)
                having = round_times(second, method, prompt, processor=f"{plain} {options}".strip(), **same)
                rounds += list(zip(without, having, strict=False)) if number else []
                for rest in (without, having):
                    rest.close()
            _tell(plain, options, rounds)
    if disturbed := disturbance([machine.other_cores]):
        print(disturbed, file=sys.stderr)


def _tell(plain: str, options: str, rounds: list[tuple[float, float]]) -> None:
    """rounds: seconds of a round without the options and of the one beside it with them."""
    usual = statistics.median(without for without, _ in rounds)
    added, low, high = median_interval([having - without for without, having in rounds])
    share = f"{added / usual:.1%} ({low / usual:.1%} to {high / usual:.1%})"
    print(f"{plain} + {options or 'nothing'}: {share} of a round of {usual * 1e3:.2f} ms, {len(rounds)} rounds")


if __name__ == "__main__":
    typer.run(main)
