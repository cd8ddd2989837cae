"""Verify growth v(n): what a forward over n rows costs, in forwards over one, by format of the target's weights."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.table import Table

from sampling.forward.runner import prefill
from sampling.pair.pair_engine import PairEngine
from utils.device.timing import PhaseClock
from utils.files import write_atomically
from utils.provenance import cpu_name

WIDTHS = (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 32)
ROUNDS = 15
_START, _END = "<!-- growth table -->", "<!-- end of growth table -->"


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
    """ms: by format of the weights, then by number of rows. context: tokens behind which the rows were fed.

    cpu: what computed, a GPU where it was one.
    """

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
        device = next(iter(engines.values())).pair.target.device
        return cls(
            command=f"uv run {shlex.join(['scripts/verify_growth.py', *sys.argv[1:]])}",
            cpu=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
            threads=torch.get_num_threads(),
            torch=torch.__version__,
            context=len(prompt),
            rounds=rounds,
            dtypes={
                name: str(engine.pair.target.model.dtype).removeprefix("torch.") for name, engine in engines.items()
            },
            ms=verify_growth(engines, prompt, rounds=rounds),
        )

    @classmethod
    def read(cls, path: Path) -> "Growth":
        """What was written."""
        there: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there["ms"] = {name: {int(rows): ms for rows, ms in of.items()} for name, of in there["ms"].items()}
        return cls(**there)

    def write(self, page: Path, file: Path) -> None:
        """Numbers into the file, the table between the marks of the page."""
        write_atomically(file, json.dumps(asdict(self), indent=2) + "\n")
        before, _, rest = page.read_text(encoding="utf-8").partition(_START)
        write_atomically(page, f"{before}{_START}\n{self.markdown()}\n{_END}{rest.partition(_END)[2]}")

    def markdown(self) -> str:
        """How the page tells it."""
        headings, rows = self._cells()
        lines = ["| " + " | ".join(row) + " |" for row in (headings, *rows)]
        return "\n".join(
            [
                f"Measured with `{self.command}`: one target forward {self.where()}, {self.formats()}; {self.cpu}, "
                f"{self.threads} threads; torch {self.torch}. Numbers: [growth.json](results/growth.json).",
                "",
                lines[0],
                f"|{'---|' * len(headings)}",
                *lines[1:],
            ]
        )

    def where(self) -> str:
        """Behind what, and how often."""
        return f"behind {self.context} tokens, medians of {self.rounds} interleaved rounds"

    def formats(self) -> str:
        """Each format, with that between its products."""
        return ", ".join(f"{name} in {dtype}" for name, dtype in self.dtypes.items())

    def table(self) -> Table:
        """For a terminal."""
        headings, rows = self._cells()
        table = Table(*headings, title=f"one target forward {self.where()}")
        for row in rows:
            table.add_row(*row)
        return table

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


def told(page: Path) -> str:
    """What stands between the marks of the page."""
    return page.read_text(encoding="utf-8").partition(_START)[2].partition(_END)[0].strip()
