"""What a benchmark comes to: numbers as JSON, and a table between two marks of docs/benchmarks.md."""

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.table import Table

from sampling.pair import Pair
from scripts.duels import DuelOutcome
from utils.files import write_atomically
from utils.provenance import ROOT, cpu_name

PAGE = ROOT / "docs/benchmarks.md"
RESULTS = ROOT / "docs/results"
RECORD = RESULTS / "benchmark.json"
MARK = "benchmark"
UNMEASURED = "Not measured yet."

_HEADINGS = ("ours", "against", "ratio, median", "95 % interval", "ours, ms/token", "theirs, ms/token", "runs")


def between(page: Path, mark: str) -> str:
    """What stands between the marks of this name."""
    start, end = _marks(mark)
    return page.read_text(encoding="utf-8").split(start)[1].split(end)[0].strip()


def write(record: Any, mark: str, page: Path, file: Path) -> None:
    """A report, a dataclass with `markdown()`: its numbers into the file, its table between the marks of the page."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(asdict(record), indent=2) + "\n")
    (start, end), text = _marks(mark), page.read_text(encoding="utf-8")
    before, after = text.split(start)[0], text.split(end)[1]
    write_atomically(page, f"{before}{start}\n{record.markdown()}\n{end}{after}")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} table -->", f"<!-- end of {name} table -->"


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as a table of a page."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, *rows)).replace(
        " |\n", f" |\n|{'---|' * len(headings)}\n", 1
    )


def terminal_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """The same cells for a terminal."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    return table


def interval(low: float, high: float) -> str:
    """The bounds of a ratio's interval."""
    return f"{low:.2f} to {high:.2f}"


def command() -> str:
    """The call that is running."""
    return f"uv run {shlex.join(['scripts/benchmark.py', *sys.argv[1:]])}"


def dtype_name(pair: Pair) -> str:
    """The number format that the target computes in, between its products."""
    return str(pair.target.model.dtype).removeprefix("torch.")


def circumstances(device: torch.device) -> dict[str, Any]:
    """The call, the machine (`cpu` names what computes, a GPU where it is one) and the version that computes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return {"command": command(), "cpu": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


@dataclass(frozen=True, slots=True)
class Again:
    """Requests that come a second time: speed over our own AR with its 95 % interval, tokens a round, prompts."""

    ratio: float
    low: float
    high: float
    tokens_per_round: float
    prompts: int


@dataclass(frozen=True, slots=True)
class Benchmark:
    """All duels against transformers; forward_ms: milliseconds of one target forward by its number of tokens."""

    command: str
    length: int
    repeats: int
    dtype: str
    cpu: str
    threads: int
    torch: str
    transformers: str
    duels: tuple[DuelOutcome, ...]
    forward_ms: dict[int, float]
    again: Again | None = None

    @classmethod
    def of(cls, pair: Pair, **measured: Any) -> "Benchmark":
        """A report of what was measured on this pair, here and now."""
        return cls(
            **circumstances(pair.target.device),
            dtype=dtype_name(pair),
            transformers=transformers.__version__,
            **measured,
        )

    @classmethod
    def read(cls, path: Path) -> "Benchmark":
        """What `write` wrote."""
        there: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there["duels"] = tuple(DuelOutcome(**one) for one in there["duels"])
        there["forward_ms"] = {int(tokens): ms for tokens, ms in there["forward_ms"].items()}
        there["again"] = Again(**there["again"]) if there["again"] else None
        return cls(**there)

    def markdown(self) -> str:
        """How the page tells it."""
        rows = [[*_cells(one), str(one.other_text), _share(one.outside_forwards)] for one in self.duels]
        return "\n".join(
            [
                f"Measured with `{self.command}`: {self.length} new tokens, {self.repeats} repeats, {self.dtype}; "
                f"{self.cpu}, {self.threads} threads; torch {self.torch}, transformers {self.transformers}.",
                "",
                markdown_table([*_HEADINGS, "other text", "outside forwards"], rows),
                "",
                self.growth(),
            ]
        )

    def growth(self) -> str:
        """What a forward over several tokens costs, in a sentence."""
        shown = ", ".join(f"{tokens}: {ms:.1f}" for tokens, ms in self.forward_ms.items())
        ratio = self.forward_ms[5] / self.forward_ms[1]
        return f"One target forward over n tokens, ms: {shown}; v(5) = {ratio:.2f}."

    def sentences(self) -> list[str]:
        """What the terminal is told beside the table."""
        if self.again is None:
            return [self.growth()]
        again = self.again
        return [
            self.growth(),
            f"requests that come again: suffix {again.ratio:.2f} ({interval(again.low, again.high)}) times our AR, "
            f"{again.tokens_per_round:.2f} tokens a round, {again.prompts} prompts",
        ]

    def table(self) -> Table:
        """The duels for a terminal."""
        return terminal_table(_HEADINGS, map(_cells, self.duels))


def _cells(one: DuelOutcome) -> list[str]:
    return [
        *(one.ours, one.against, f"{one.ratio:.2f}", interval(one.low, one.high)),
        *(f"{one.ours_ms:.1f}", f"{one.theirs_ms:.1f}", str(one.runs)),
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
