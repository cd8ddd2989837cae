"""Whether a change made decoding slower: the same generations in two checkouts, which take turns.

uv run scripts/compare_checkouts.py OLD NEW [--formats float32,bfloat16,int8,int4] [--turns 4] [--length 64]
[--context 300] [--methods "target;mtp"] [--processor "nucleus 0.8 0.9"]

Both checkouts are loaded at once, each in a process with its own environment (`uv sync` there first), and asked for one
generation after the other: old, new, new, old, ... So what slows the machine for a while falls on both. Which of them
was loaded first matters, too (a few percent), so that all is done in both orders. A checkout beside itself is the
control.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import geometric_mean, median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

Run = tuple[str, dict[str, Any]]
Pair = tuple[dict[str, Any], dict[str, Any]]
"""What both checkouts answer in a turn, the old one first."""

METHODS: dict[str, Run] = {
    "target": ("target", {}),
    "speculative gamma=4": ("speculative", {"gamma": 4}),
    "suffix": ("suffix", {}),
    "mtp": ("mtp", {}),
    "auto": ("auto", {}),
    "mtp, tree of 8": ("mtp", {"draft_tree": "dynamic", "tree_tokens": 8}),
}
FORMATS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"target_weights": "int8"},
    "int4": {"target_weights": "int4"},
}
PROMPT = "Write a Python function that parses a date such as 2024-05-17, and explain each of its lines."

# What a checkout's process runs: a line in is a method with its values, a line out what its rounds took.
ANSWERING = """
import json, resource, sys
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.methods.settings import PARAMETERS, Settings
from sampling.pair.pair_engine import PairEngine
from utils.events import Round

options, prompt, length, context, processor = json.loads(sys.argv[1])
engine = PairEngine(load_pair(LoadOptions(**options)))
engine = engine.in_format(options.get("target_weights", engine.describe().target.stored))
ids = engine.tokenise([prompt], True)
if context:
    ids = (engine.tokenise([prompt], False) * context)[: context - len(ids)] + ids
print("ready", flush=True)
for line in sys.stdin:
    name, own = json.loads(line)
    values = {**Settings(), **own, "length": length, "processor": PARAMETERS["processor"].parse(processor)}
    events = engine.stream(name, values, ids, line)
    rounds = [event for event in events if isinstance(event, Round)]
    seconds = [round.draft_s + round.verify_s + round.other_s for round in rounds]
    tokens = [token for round in rounds for token in round.emitted]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rounds": seconds, "tokens": tokens, "peak_mb": peak}), flush=True)
"""


class Checkout:
    """A checkout's process. Raises `typer.Exit`, with its last words, where it ends."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder, self._process = folder, process
        self._line()

    def generate(self, run: Run) -> dict[str, Any]:
        """The seconds of the rounds of one generation, its ids, and the process's peak memory so far."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(run) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line
        said = self._process.stderr.read() if self._process.stderr else ""
        print(f"{self.folder}: exit status {self._process.wait()}\n{said[-2000:]}", file=sys.stderr)
        raise typer.Exit(1)


@contextmanager
def opened(folder: Path, options: dict[str, Any], *asked: int | str) -> Iterator[Checkout]:
    """A checkout with the default pair loaded; asked: the length of answers and prompt, and the processor."""
    about = json.dumps([options, PROMPT, *asked])
    command = [str(folder / ".venv" / "bin" / "python"), "-c", ANSWERING, about]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(command, cwd=folder, text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield Checkout(folder, process)
        finally:
            process.kill()


def ms(name: str, answer: dict[str, Any]) -> float:
    """Milliseconds of a round in the median; of `auto`, which chooses its rounds by the clock, of a token."""
    seconds = answer["rounds"]
    return 1e3 * float(sum(seconds) / len(answer["tokens"]) if name == "auto" else median(seconds))


def main(
    old: Annotated[Path, typer.Argument(help="checkout before the change", exists=True, file_okay=False)],
    new: Annotated[Path, typer.Argument(help="checkout with it", exists=True, file_okay=False)],
    formats: Annotated[str, typer.Option(help=f"of {', '.join(FORMATS)}, between commas")] = ",".join(FORMATS),
    turns: Annotated[int, typer.Option(min=1, help="generations of each checkout, method, format and order")] = 4,
    length: Annotated[int, typer.Option(min=1, help="new tokens of a generation")] = 64,
    context: Annotated[int, typer.Option(min=0, help="tokens of the prompt; 0: as it is")] = 0,
    methods: Annotated[str, typer.Option(help="of the table, between semicolons")] = ";".join(METHODS),
    processor: Annotated[str, typer.Option(help='such as "nucleus 0.8 0.9"')] = "greedy",
) -> None:
    """Milliseconds a round (`auto`: a token) in both checkouts, their paired ratio, and whether the ids agree."""
    if unknown := [name for name in formats.split(",") if name not in FORMATS]:
        raise typer.BadParameter(f"formats {unknown[0]!r} given; expected of {', '.join(FORMATS)}")
    if unknown := [name for name in methods.split(";") if name not in METHODS]:
        raise typer.BadParameter(f"methods {unknown[0]!r} given; expected of {'; '.join(METHODS)}")
    chosen = {name: METHODS[name] for name in methods.split(";")}
    table = Table("format", "method", "old, ms", "new, ms", "new / old", "ids equal", "peak MB, old / new")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(formats.split(",")) * len(chosen) * 2 * turns)
        for format in formats.split(","):
            pairs: dict[str, list[list[Pair]]] = {name: [] for name in chosen}
            for swapped in (False, True):
                first, second = (new, old) if swapped else (old, new)
                options = FORMATS[format]
                with (
                    opened(first.resolve(), options, length, context, processor) as one,
                    opened(second.resolve(), options, length, context, processor) as other,
                ):
                    for name, run in chosen.items():
                        progress.update(task, description=f"{format}, {name}")
                        taken = list(taking_turns(one, other, run, turns, lambda: progress.advance(task)))
                        pairs[name].append([pair[::-1] for pair in taken] if swapped else taken)
            for name, by_order in pairs.items():
                table.add_row(format, name, *cells(name, by_order))
    Console().print(table)


def taking_turns(one: Checkout, other: Checkout, run: Run, turns: int, tell: Callable[[], None]) -> Iterator[Pair]:
    """What both answer, turn by turn; what only a first generation pays for is paid before."""
    for checkout in (one, other):
        checkout.generate(run)
    for turn in range(turns):
        order = (one, other) if turn % 2 == 0 else (other, one)
        first, second = (checkout.generate(run) for checkout in order)
        yield (first, second) if turn % 2 == 0 else (second, first)
        tell()


def cells(name: str, by_order: list[list[Pair]]) -> Iterator[str]:
    """The cells of a method's row: the ratio is the mean of both orders, which stand behind it."""
    every = [pair for pairs in by_order for pair in pairs]
    orders = [median(ms(name, new) / ms(name, old) for old, new in pairs) for pairs in by_order]
    for side in (0, 1):
        yield f"{median(ms(name, pair[side]) for pair in every):.2f}"
    yield f"{geometric_mean(orders):.3f} ({', '.join(f'{ratio:.3f}' for ratio in orders)})"
    yield f"{sum(old['tokens'] == new['tokens'] for old, new in every)} of {len(every)}"
    yield " / ".join(f"{max(pair[side]['peak_mb'] for pair in every):.0f}" for side in (0, 1))


if __name__ == "__main__":
    typer.run(main)
