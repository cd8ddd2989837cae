"""Verify growth v(n): what a forward over n rows costs, in forwards over one, by format of the target's weights."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from sampling.forward.runner import prefill
from sampling.pair_engine import PairEngine
from scripts.benchmarks.record import RESULTS, circumstances, dtype_name, markdown_table, terminal_table
from utils.timing import PhaseClock

RECORD = RESULTS / "growth.json"
MARK = "growth"
WIDTHS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 32)
ROUNDS = 15


def verify_growth(
    engines: Mapping[str, PairEngine], prompt: Sequence[int], counts: Sequence[int] = WIDTHS, rounds: int = ROUNDS
) -> dict[str, dict[int, float]]:
    """Milliseconds of one target forward by engine and number of rows, behind the prompt: medians of rounds.

    In each round every engine takes each number of rows once, so that what disturbs the machine meets all alike.
    """
    times: dict[tuple[str, int], list[float]] = {(name, count): [] for name in engines for count in counts}
    clocks = {name: PhaseClock(engine.pair.target.device) for name, engine in engines.items()}
    tokens = list(prompt) * (max(counts) // len(prompt) + 1)
    for engine in engines.values():
        prefill(engine.pair.target, prompt)
    for _ in range(rounds):
        for name, count in times:
            target = engines[name].pair.target
            target.crop(len(prompt))
            clocks[name].start()
            target.forward(tokens[:count])
            clocks[name].lap("")
            times[name, count].append(clocks[name].stop()[""])
    return {name: {count: median(times[name, count]) * 1e3 for count in counts} for name in engines}


@dataclass(frozen=True, slots=True)
class Growth:
    """ms: by format of the weights, then by number of rows. context: tokens behind which the rows were fed."""

    command: str
    cpu: str
    threads: int
    torch: str
    context: int
    rounds: int
    dtypes: dict[str, str]
    ms: dict[str, dict[int, float]]

    @classmethod
    def measure(cls, engines: Mapping[str, PairEngine], prompt: Sequence[int], rounds: int = ROUNDS) -> "Growth":
        """Of these engines, here and now."""
        return cls(
            **circumstances(next(iter(engines.values())).pair.target.device),
            context=len(prompt),
            rounds=rounds,
            dtypes={name: dtype_name(engine.pair) for name, engine in engines.items()},
            ms=verify_growth(engines, prompt, rounds=rounds),
        )

    @classmethod
    def read(cls, path: Path) -> "Growth":
        """What was written."""
        there: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there["ms"] = {name: {int(rows): ms for rows, ms in of.items()} for name, of in there["ms"].items()}
        return cls(**there)

    def markdown(self) -> str:
        """How the page tells it."""
        formats = ", ".join(f"{name} in {dtype}" for name, dtype in self.dtypes.items())
        return "\n".join(
            [
                f"Measured with `{self.command}`: one target forward behind {self.context} tokens, medians of "
                f"{self.rounds} interleaved rounds, {formats}; {self.cpu}, {self.threads} threads; torch {self.torch}. "
                "Numbers: [growth.json](results/growth.json).",
                "",
                markdown_table(*self._cells()),
            ]
        )

    def sentences(self) -> list[str]:
        """What the terminal is told beside the table."""
        return [f"one target forward behind {self.context} tokens, medians of {self.rounds} rounds"]

    def table(self) -> Table:
        """For a terminal."""
        return terminal_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        headings = ["rows", *(part for name in self.ms for part in (f"{name}, ms", "v(n)"))]
        rows = [
            [
                str(count),
                *(cell for of in self.ms.values() for cell in (f"{of[count]:.1f}", f"{of[count] / of[1]:.2f}")),
            ]
            for count in next(iter(self.ms.values()))
        ]
        return headings, rows
