"""Our rows against llama.cpp on the file of the embedded default: the matches, and what they come to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.table import Table

from ablation.plan.grid import Configuration
from sampling.loading.origin import embedded_gguf
from sampling.methods import REFERENCE
from sampling.pair_engine import PairEngine
from sampling.settings import Settings
from scripts.benchmarks.contest import Contest, Match, MatchOutcome, Side
from scripts.benchmarks.play import Prompts, settings_of, warm_prompt
from scripts.benchmarks.record import RESULTS, circumstances, dtype_name, interval, markdown_table, terminal_table
from scripts.duels import COPIED, NGRAM_ORDER, of_method
from scripts.peers.process import Answer, Peer
from utils.parameter import Values

RECORD = RESULTS / "llama.cpp.json"
MARK = "llama.cpp"
LOOKUP = "prompt_lookup"
TITLES = {REFERENCE: "AR", LOOKUP: "prompt lookup"}
_ROUND = 256
_HEADINGS = (
    *("ours", "weights", "against its", "ratio, median", "95 % interval", "ours, tokens/s", "theirs, tokens/s"),
    *("prompts", "runs", "equal texts", "agreed tokens", "theirs outside forwards"),
)
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class LlamaReport:
    """All matches against llama.cpp; `peer`: what ran there, as it said itself.

    waiting: cores that the waiting side kept busy, on average. others: the most that programs kept busy which took
    no part; None where no answer took long enough to tell. ended: why it ended before all was played, or None.
    """

    command: str
    cpu: str
    threads: int
    torch: str
    length: int
    drafts: int
    repeats: int
    dtypes: dict[str, str]
    peer: dict[str, Any]
    matches: tuple[MatchOutcome, ...]
    waiting: float
    others: float | None
    ended: str | None

    @classmethod
    def read(cls, path: Path) -> "LlamaReport":
        """What was written."""
        there: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there["matches"] = tuple(MatchOutcome(**one) for one in there["matches"])
        return cls(**there)

    def markdown(self) -> str:
        """How the page tells it."""
        ended = [f"It ended before all was played: {self.ended}.", ""] if self.ended else []
        table = markdown_table(_HEADINGS, map(_cells, self.matches))
        return "\n".join([self._circumstances(), "", *ended, table])

    def table(self) -> Table:
        """The matches for a terminal, but for what only the page has room for."""
        return terminal_table(_HEADINGS[:_SHOWN], (_cells(one)[:_SHOWN] for one in self.matches))

    def sentences(self) -> list[str]:
        """What the terminal is told beside the table."""
        return [f"{self._waited()}."]

    def _circumstances(self) -> str:
        formats = ", ".join(f"{name} in {dtype}" for name, dtype in self.dtypes.items())
        peer = self.peer
        return (
            f"Measured with `{self.command}`: up to {self.length} new tokens, {self.drafts} drafts a round of prompt "
            f"lookup, {self.repeats} repeats; {self.cpu}, {self.threads} threads on each side. Ours: torch "
            f"{self.torch}, {formats}. Theirs: {peer['version']}, no GPU, batches of {peer['batch']}, flash attention "
            f"{'on' if peer['flash_attention'] else 'off'}, keys and values in {' and '.join(peer['cache'])}. "
            f"{self._waited()}. "
            "Numbers: [llama.cpp.json](results/llama.cpp.json)."
        )

    def _waited(self) -> str:
        others = "how busy other programs were is unknown"
        if self.others is not None:
            others = f"other programs {self.others:.2f} at most"
        return f"The side that waited kept {self.waiting:.2f} cores busy on average, {others}"


def _cells(one: MatchOutcome) -> list[str]:
    return [
        *(one.ours, one.weights, one.against, f"{one.ratio:.2f}", interval(one.low, one.high)),
        *(f"{one.ours_tps:.1f}", f"{one.theirs_tps:.1f}", str(one.prompts), str(one.runs), str(one.equal)),
        *("-" if one.agreed is None else f"{one.agreed:g}", f"{100 * one.their_other:.1f} %"),
    ]


def peer_settings(length: int, gamma: int, drafts: int) -> Settings:
    """Ours: greedy, what the binding's prompt lookup does (the first occurrence), no memory of earlier answers."""
    settings = settings_of(length, gamma)
    changed = {"num_speculative_tokens": str(drafts), "lookup_occurrence": "first", "draft_weights": "auto"}
    settings.assign_all(list(changed.items()))
    return settings


def match_all(
    engines: Mapping[str, PairEngine], runs: Sequence[Configuration], settings: Settings, drafts: int, peer: Peer
) -> list[Match]:
    """Each run in each format against what llama.cpp has of it, else against both that it has."""
    stop = next(iter(engines.values())).pair.stop

    def theirs(name: str, count: int, tasks: tuple[str, ...] = ()) -> Side:
        def ask(ids: list[int]) -> Answer:
            return peer.ask(ids, settings["length"], count, NGRAM_ORDER, stop)

        return Side(TITLES[name], "GGUF", ask, tasks)

    has = {REFERENCE: theirs(REFERENCE, 0), LOOKUP: theirs(LOOKUP, drafts, COPIED)}
    found = []
    for run in runs:
        for weights, engine in engines.items():
            ours = our_side(engine, weights, run, settings)
            found += [Match(ours, side) for name, side in has.items() if run.method not in has or run.method == name]
    return found


def our_side(engine: PairEngine, weights: str, run: Configuration, values: Values) -> Side:
    """A method of ours with its own values, in one format of the weights."""
    decode = of_method(engine, run.method, {**values, **dict(run.parameters)}, run.name)

    def ask(ids: list[int]) -> Answer:
        account = decode(ids)
        return Answer(account.output_ids, account.prefill_s, account.decode_s, account.verify_s)

    return Side(TITLES.get(run.name, run.name), weights, ask, COPIED if run.method == LOOKUP else ())


def context_for(prompts: Prompts, length: int, drafts: int) -> int:
    """Tokens that its cache must hold, as llama.cpp counts them: in steps of 256."""
    longest = max(len(ids) for _, ids in prompts) + length + drafts + 1
    return -(-longest // _ROUND) * _ROUND


def against_llama(
    python: Path,
    engines: Mapping[str, PairEngine],
    runs: Sequence[Configuration],
    prompts: Prompts,
    settings: Settings,
    repeats: int,
) -> LlamaReport:
    """Play every run in the format of every engine. Raises `PeerError` where llama.cpp does not start."""
    drafts, pair = settings["num_speculative_tokens"], next(iter(engines.values())).pair
    context = context_for([*prompts, (None, warm_prompt(pair))], settings["length"], drafts)
    with Peer(python, embedded_gguf(), torch.get_num_threads(), context) as peer:
        contest = Contest(match_all(engines, runs, settings, drafts, peer), peer.cpu_s)
        ended = contest.play(prompts, repeats, warm_prompt(pair))
    return LlamaReport(
        **circumstances(torch.device("cpu")),
        **{"length": settings["length"], "drafts": drafts, "repeats": repeats, "peer": peer.described},
        dtypes={name: dtype_name(engine.pair) for name, engine in engines.items()},
        matches=contest.outcomes(),
        waiting=mean(contest.waiting or [0.0]),
        others=max((cores for cores in contest.others if cores is not None), default=None),
        ended=ended,
    )
