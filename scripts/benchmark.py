"""Our loop against transformers' generate on the same weights, ids and machine state; ratios with intervals.

Every comparison runs both sides one after the other for each prompt and repeat, the order swapped each
time, in one process. A side is timed as a whole call, prompt included, because `generate` cannot be timed
in parts. Reports to the terminal and, with --write, to docs/benchmarks.md and docs/results/benchmark.json.
"""

import utils.threads  # noqa: F401

import json
import shlex
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import transformers
import typer
from rich.console import Console
from rich.table import Table

from ablation.commands.checked import run_checked
from ablation.plan.prompt_file import read_prompts
from ablation.run.bar import told
from sampling.forward.runner import prefill
from sampling.loading.options import DTYPES
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.methods import REFERENCE
from sampling.pair import Pair
from sampling.pair_engine import PairEngine
from sampling.settings import Settings
from scripts.duels import COPIED, NGRAM_ORDER, Duel, DuelOutcome, duels, of_method
from utils.intervals import bootstrap_median
from utils.machine import Machine, disturbance
from utils.provenance import ROOT, cpu_name

PAGE = ROOT / "docs/benchmarks.md"
RECORD = ROOT / "docs/results/benchmark.json"
START, END = "<!-- benchmark table -->", "<!-- end of benchmark table -->"
WIDTHS = (1, 2, 3, 5, 9, 17)
AGAIN = "again"

Prompts = list[tuple[str | None, list[int]]]


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
    """All that a call measured; forward_ms: milliseconds of one target forward by its number of tokens."""

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
    def read(cls, path: Path) -> "Benchmark":
        """What `write` wrote."""
        there: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there["duels"] = tuple(DuelOutcome(**one) for one in there["duels"])
        there["forward_ms"] = {int(tokens): ms for tokens, ms in there["forward_ms"].items()}
        there["again"] = Again(**there["again"]) if there["again"] else None
        return cls(**there)

    def write(self, page: Path = PAGE, record: Path = RECORD) -> None:
        """The record as JSON, and its table between the marks of the page."""
        record.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        text = page.read_text(encoding="utf-8")
        before, after = text.split(START)[0], text.split(END)[1]
        page.write_text(f"{before}{START}\n{self.markdown()}\n{END}{after}", encoding="utf-8")

    def markdown(self) -> str:
        """How the page tells it."""
        rows = [[*_cells(one), str(one.other_text), _share(one.outside_forwards)] for one in self.duels]
        return "\n".join(
            [
                f"Measured with `{self.command}`: {self.length} new tokens, {self.repeats} repeats, {self.dtype}; "
                f"{self.cpu}, {self.threads} threads; torch {self.torch}, transformers {self.transformers}.",
                "",
                "| ours | against | ratio, median | 95 % interval | ours, ms/token | theirs, ms/token | runs | "
                "other text | outside forwards |",
                "|---|---|---|---|---|---|---|---|---|",
                *("| " + " | ".join(row) + " |" for row in rows),
                "",
                self.growth(),
            ]
        )

    def growth(self) -> str:
        """What a forward over several tokens costs, in a sentence."""
        shown = ", ".join(f"{tokens}: {ms:.1f}" for tokens, ms in self.forward_ms.items())
        ratio = self.forward_ms[5] / self.forward_ms[1]
        return f"One target forward over n tokens, ms: {shown}; v(5) = {ratio:.2f}."

    def table(self) -> Table:
        """The duels for a terminal."""
        table = Table("ours", "against", "ratio", "95 % interval", "ours ms/token", "theirs ms/token", "runs")
        for one in self.duels:
            table.add_row(*_cells(one))
        return table


def _cells(one: DuelOutcome) -> list[str]:
    interval = f"{one.low:.2f} to {one.high:.2f}"
    return [
        *(one.ours, one.against, f"{one.ratio:.2f}", interval),
        *(f"{one.ours_ms:.1f}", f"{one.theirs_ms:.1f}", str(one.runs)),
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def play(played: list[Duel], prompts: Prompts, repeats: int, warm: list[int]) -> None:
    """Every duel on each of its prompts, so many times, after one on a prompt that is not measured."""
    for duel in played:
        duel.play(warm, True)
        duel.forget()
    rounds = [(ids, duel) for task, ids in prompts for duel in played if not duel.tasks or task in duel.tasks]
    with told("measuring") as tell:
        for repeat in range(repeats):
            for number, (ids, duel) in enumerate(rounds):
                tell(repeat * len(rounds) + number, repeats * len(rounds), duel.name)
                duel.play(ids, (repeat + number) % 2 == 0)


def verify_growth(engine: PairEngine, prompt: list[int], counts: tuple[int, ...] = WIDTHS) -> dict[int, float]:
    """v(n): milliseconds of one target forward over n tokens behind the prompt, medians of interleaved runs."""
    target = engine.pair.target
    times: dict[int, list[float]] = {count: [] for count in counts}
    prefill(target, prompt)
    for _ in range(15):
        for count in counts:
            target.crop(len(prompt))
            start = time.perf_counter()
            target.forward(prompt[:count])
            times[count].append(time.perf_counter() - start)
    return {count: median(values) * 1e3 for count, values in times.items()}


def repeated_requests(engine: PairEngine, settings: Settings, prompts: list[list[int]]) -> Again:
    """Prompts that come a second time: suffix decoding with its memory kept, against our own AR, interleaved.

    Both sides are our loop, so their decode times are compared, without the prompt.
    """
    suffix, plain = (of_method(engine, name, settings) for name in ("suffix", REFERENCE))
    for prompt in prompts:
        suffix(prompt)
    ratios, tokens, rounds = [], 0, 0
    for number, prompt in enumerate(prompts):
        runs = {}
        for name, run in (("suffix", suffix), ("plain", plain))[:: 1 if number % 2 else -1]:
            runs[name] = run(prompt)
        tokens += runs["suffix"].new_tokens
        rounds += runs["suffix"].rounds
        ratios.append((runs["suffix"].tokens_per_s or 0.0) / (runs["plain"].tokens_per_s or 1.0))
    return Again(*bootstrap_median(ratios), tokens / rounds, len(prompts))


def settings_of(length: int, drafts: int) -> Settings:
    """What both sides run with: greedy, so many drafts a round, no memory, weights of one format."""
    settings = Settings()
    wanted = {
        **{"length": length, "gamma": drafts, "num_speculative_tokens": drafts, "max_cached_requests": 0},
        **{"set_ngramstorage": f"basic {NGRAM_ORDER}", "max_ngram_size": NGRAM_ORDER, "draft_weights": "full"},
    }
    for name, value in wanted.items():
        settings.assign(name, str(value))
    return settings


def first_prompts(pair: Pair, path: Path, limit: int) -> Prompts:
    """(task, ids) of so many prompts of each task."""
    tasks: dict[str | None, list[list[int]]] = {}
    for prompt in read_prompts(path):
        tasks.setdefault(prompt.task, []).append(pair.encode(list(prompt.turns[:1]), chat=True))
    return [(task, ids) for task, of_task in tasks.items() for ids in of_task[:limit]]


def circumstances(pair: Pair) -> dict[str, Any]:
    """The call, the machine and the versions."""
    return {
        "command": f"uv run {shlex.join(['scripts/benchmark.py', *sys.argv[1:]])}",
        "dtype": str(pair.target.model.dtype).removeprefix("torch."),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def say(report: Benchmark) -> None:
    """What was measured, for a terminal."""
    Console().print(report.table())
    print(report.growth())
    if again := report.again:
        print(
            f"requests that come again: suffix {again.ratio:.2f} ({again.low:.2f} to {again.high:.2f}) times our AR, "
            f"{again.tokens_per_round:.2f} tokens a round, {again.prompts} prompts"
        )


Length = Annotated[int, typer.Option(help="new tokens a run")]
Gamma = Annotated[int, typer.Option(help="drafted tokens a round, on both sides")]
LookupGamma = Annotated[int, typer.Option(help="drafted tokens a round of the n-gram methods")]
Repeats = Annotated[int, typer.Option(help="runs of each side on each prompt")]
Dtype = Annotated[str, typer.Option(help=", ".join(DTYPES))]
PromptFile = Annotated[Path, typer.Option(help="prompt file")]
ALL = "AR,SD,NASD,Prompt lookup,Suffix,again"
Only = Annotated[str, typer.Option(help=f"comparisons, comma-separated: {ALL}")]
Limit = Annotated[int, typer.Option(help="prompts of each task")]
Write = Annotated[bool, typer.Option(help="put the table into docs/benchmarks.md, and JSON beside it")]


def main(
    length: Length = 128,
    gamma: Gamma = 4,
    lookup_gamma: LookupGamma = 10,
    repeats: Repeats = 3,
    dtype: Dtype = "auto",
    prompts: PromptFile = ROOT / "scripts/benchmark_prompts.jsonl",
    only: Only = ALL,
    limit: Limit = 100,
    write: Write = False,
) -> None:
    """Measure the embedded default on the CPU, ours against transformers."""
    transformers.utils.logging.set_verbosity_error()
    pair = load_pair(LoadOptions(dtype=dtype, device="cpu"))
    engine, settings, lookup = PairEngine(pair), settings_of(length, gamma), settings_of(length, lookup_gamma)
    wanted, chosen, again = only.split(","), first_prompts(pair, prompts, limit), None
    played = [duel for duel in duels(engine, settings, lookup) if duel.name.partition(",")[0] in wanted]
    with Machine() as machine:
        play(played, chosen, repeats, pair.encode(["Count from one to ten."], chat=True))
    if AGAIN in wanted:
        settings.assign_all([("max_cached_requests", "-1"), ("num_speculative_tokens", str(lookup_gamma))])
        again = repeated_requests(PairEngine(pair.fresh()), settings, [ids for task, ids in chosen if task in COPIED])
    outcomes, growth = tuple(duel.outcome() for duel in played), verify_growth(engine, chosen[0][1])
    report = Benchmark(
        **circumstances(pair), length=length, repeats=repeats, duels=outcomes, forward_ms=growth, again=again
    )
    say(report)
    if disturbed := disturbance([machine.other_cores]):
        print(disturbed, file=sys.stderr)
    if write:
        report.write()


if __name__ == "__main__":
    run_checked(main)
