"""Our loop against others on the same weights, ids and machine state; ratios with intervals.

Every comparison runs both sides one after the other for each prompt and repeat, the order changed each time.
Transformers runs in this process and is timed as a whole call, prompt included, because `generate` cannot be timed in
parts; llama.cpp runs in a process of its own (`scripts/peers`), and decoding alone is compared. Reports to the terminal
and, with --write, to docs/benchmarks.md and docs/results, each table as soon as it is there.
"""

import utils.threads  # noqa: F401

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import transformers
import typer

from ablation.commands.checked import run_checked
from ablation.commands.options import exit_statuses, out_console
from ablation.plan.grid import Configuration
from sampling.forward.formats import FULL
from sampling.loading.options import DEVICES, DTYPES, EVERYWHERE, GRAPHS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair_engine import PairEngine
from sampling.settings import Settings
from scripts.benchmarks import growth, llama, record
from scripts.benchmarks.asked import AGAIN, DUELS, GROWTH, LLAMA, PEERS, TRANSFORMERS, Asked, read_asked
from scripts.benchmarks.growth import Growth, verify_growth
from scripts.benchmarks.llama import LlamaReport, against_llama, peer_settings
from scripts.benchmarks.play import Prompts, first_prompts, play, repeated_requests, settings_of, warm_prompt
from scripts.benchmarks.record import PAGE, Benchmark
from scripts.duels import COPIED, duels
from scripts.peers.process import FOLDER, HOW, PeerError, find_python
from utils.errors import UserError
from utils.machine import Machine, disturbance
from utils.provenance import ROOT

WIDTHS = (1, 2, 3, 5, 9, 17)
EVERY_FORMAT = ",".join(EVERYWHERE)

Length = Annotated[int, typer.Option(min=1, help="new tokens a run")]
Gamma = Annotated[int, typer.Option(min=1, help="drafted tokens a round, on both sides")]
LookupGamma = Annotated[int, typer.Option(min=1, help="drafted tokens a round of what copies, on both sides")]
Repeats = Annotated[int, typer.Option(min=1, help="runs of each side on each prompt")]
Dtype = Annotated[str, typer.Option(help=", ".join(DTYPES))]
Device = Annotated[str, typer.Option(help=f"where both sides run: {', '.join(DEVICES)}")]
Graphs = Annotated[str, typer.Option(help=f"our forwards as CUDA graphs: {', '.join(GRAPHS)}")]
PromptFile = Annotated[Path, typer.Option(help="prompt file")]
ONLY = (
    f"comparisons, comma-separated: {','.join(DUELS)} with transformers; AR, Prompt lookup and methods such as "
    f'"mtp gamma=2" with llama.cpp; {GROWTH}: what verifying n rows costs. Default: all of them without methods; '
    f"{GROWTH} with llama.cpp"
)
Only = Annotated[str | None, typer.Option(help=ONLY)]
Limit = Annotated[int, typer.Option(min=1, help="prompts of each task")]
PeerNames = Annotated[str, typer.Option("--peer", help=f"whom to meet, comma-separated: {','.join(PEERS)}")]
PeerPython = Annotated[
    str | None, typer.Option(help=f"interpreter with llama-cpp-python; default: that of {FOLDER} in the project")
]
WeightFormats = Annotated[
    str, typer.Option(help=f"formats of our target's weights against llama.cpp and for {GROWTH}, comma-separated")
]
Write = Annotated[bool, typer.Option(help="put tables into docs/benchmarks.md, and JSON into docs/results")]


def main(
    length: Length = 128,
    gamma: Gamma = 4,
    lookup_gamma: LookupGamma = 10,
    repeats: Repeats = 3,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    graphs: Graphs = "auto",
    prompts: PromptFile = ROOT / "scripts/benchmark_prompts.jsonl",
    only: Only = None,
    limit: Limit = 100,
    peer: PeerNames = TRANSFORMERS,
    peer_python: PeerPython = None,
    weights: WeightFormats = EVERY_FORMAT,
    write: Write = False,
) -> None:
    """Measure the embedded default, ours against transformers or llama.cpp."""
    transformers.utils.logging.set_verbosity_error()
    with exit_statuses():
        asked, python = _with_peer(read_asked(peer, only, weights), peer_python)
        if not asked.loaded:
            return
        if asked.runs and device != "cpu":
            raise UserError(f"--device {device} given with --peer {LLAMA}, which is met on the CPU; expected cpu")
        engines = _engines(asked.loaded, LoadOptions(dtype=dtype, device=device, graphs=graphs))
        chosen = first_prompts(next(iter(engines.values())).pair, prompts, limit)
        if asked.duels:
            _meet_transformers(asked.duels, engines[FULL], chosen, length, gamma, lookup_gamma, repeats, write)
        formats, ended = {name: engines[name] for name in asked.formats if name in engines}, None
        if python is not None:
            settings = peer_settings(length, gamma, lookup_gamma)
            ended = _meet_llama(python, formats, asked.runs, chosen, settings, repeats, write)
        if asked.growth:
            _tell(Growth.measure(formats, chosen[0][1]), growth.MARK, growth.RECORD, write)
    if ended:
        print(f"error: {ended}", file=sys.stderr)
        raise typer.Exit(1)


def _with_peer(asked: Asked, given: str | None) -> tuple[Asked, Path | None]:
    """What can be measured here, and the interpreter that has llama.cpp, where it is asked for and installed."""
    if not asked.runs:
        if given is not None:
            raise UserError(
                f"--peer-python {given} given, and nothing is compared with llama.cpp; expected --peer {LLAMA}"
            )
        return asked, None
    python = find_python(given)
    if python is None:
        print(f"llama.cpp is not installed, and the rest goes on without it; {HOW}", file=sys.stderr)
        return replace(asked, runs=()), None
    return asked, python


def _engines(formats: Sequence[str], options: LoadOptions) -> dict[str, PairEngine]:
    """The embedded default with its target in each of these formats."""
    return {name: PairEngine(load_pair(replace(options, target_weights=name))) for name in formats}


def _meet_transformers(
    wanted: Sequence[str],
    engine: PairEngine,
    prompts: Prompts,
    length: int,
    gamma: int,
    lookup_gamma: int,
    repeats: int,
    write: bool,
) -> None:
    """The duels of these names, requests that come again, and the growth that the book draws."""
    settings, lookup = settings_of(length, gamma), settings_of(length, lookup_gamma)
    played = [duel for duel in duels(engine, settings, lookup) if duel.name.partition(",")[0] in wanted]
    with Machine() as machine:
        play(played, prompts, repeats, warm_prompt(engine.pair))
    again = None
    if AGAIN in wanted:
        lookup.assign("max_cached_requests", "-1")
        copied = [ids for task, ids in prompts if task in COPIED]
        again = repeated_requests(PairEngine(engine.pair.fresh()), lookup, copied)
    report = Benchmark.of(
        engine.pair,
        length=length,
        repeats=repeats,
        duels=tuple(duel.outcome() for duel in played),
        forward_ms=verify_growth({FULL: engine}, prompts[0][1], WIDTHS)[FULL],
        again=again,
    )
    _tell(report, record.MARK, record.RECORD, write)
    if disturbed := disturbance([machine.other_cores]):
        print(disturbed, file=sys.stderr)


def _meet_llama(
    python: Path,
    engines: Mapping[str, PairEngine],
    runs: Sequence[Configuration],
    prompts: Prompts,
    settings: Settings,
    repeats: int,
    write: bool,
) -> str | None:
    """The matches against llama.cpp; why they ended early, if they did: what was played is told all the same."""
    try:
        report = against_llama(python, engines, runs, prompts, settings, repeats)
    except PeerError as error:
        return str(error)
    _tell(report, llama.MARK, llama.RECORD, write and bool(report.matches))
    if disturbed := disturbance([report.others]):
        print(disturbed, file=sys.stderr)
    return report.ended


def _tell(report: Benchmark | LlamaReport | Growth, mark: str, file: Path, write: bool) -> None:
    """A table for the terminal, and for the page and the record."""
    out_console().print(report.table())
    for line in report.sentences():
        print(line)
    if write:
        record.write(report, mark, PAGE, file)


if __name__ == "__main__":
    run_checked(main)
