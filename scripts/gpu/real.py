"""The stage `real`: the embedded default on the card, against transformers and in the plans."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import transformers
from rich.table import Table

from ablation.report.load import load_results
from ablation.report.summary import ALL, summarise
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair_engine import PairEngine
from scripts.benchmarks.play import Prompts, first_prompts, play, settings_of, warm_prompt
from scripts.duels import Duel, duels
from scripts.gpu.calls import call
from scripts.gpu.models import save_tiny
from scripts.gpu.record import LeftOut, Record
from utils.provenance import ROOT

_PROMPTS = ROOT / "scripts" / "benchmark_prompts.jsonl"
_GAMMA, _LOOKUP_GAMMA = 4, 10
_DRY_LENGTH, _DRY_WINDOW = 6, 4096  # the benchmark's prompts are long in bytes
_DUEL_S, _PLAN_S = 60.0, 150.0
# Prompts of each plan, so that it fits.
_PLANS = {"trained": 6, "copies": 8}
_DRY_PLAN = "dry_run"
_SHOWN = ("configuration", "prompts", "speedup", "speedup_low", "speedup_high", "against_ar", "tokens_per_s_mean")
_STOPPED = 130  # a plan that was asked to stop has reported what it has


@dataclass(frozen=True, slots=True)
class _Size:
    """How much is played: new tokens, runs of each side on each prompt, prompts of each task."""

    length: int = 128
    repeats: int = 3
    limit: int = 2


def real(record: Record) -> Table:
    """The duels of scripts/benchmark.py, each a measurement; then the plans, as scripts/run_ablation.py runs them."""
    size = _Size(_DRY_LENGTH, 1, 1) if record.tiny else _Size()
    given = save_tiny(record.folder / "tiny", _DRY_WINDOW) if record.tiny else {}
    played: list[Duel] = []
    prompts: Prompts = []
    record.measure("models", partial(_load, record, size, given, played, prompts))
    for duel in played:
        name = f"duel: {duel.name} against {duel.against}"
        record.measure(name, partial(_play, duel, size, prompts), 0.0 if record.tiny else _DUEL_S)
    played.clear()
    for plan in (_DRY_PLAN,) if record.tiny else _PLANS:
        record.measure(f"plan: {plan}", partial(_plan, record, plan, given), 0.0 if record.tiny else _DUEL_S)
    return _table(record)


def _load(record: Record, size: _Size, given: dict[str, str], played: list[Duel], prompts: Prompts) -> dict[str, Any]:
    """The pair, what is played with it, and on which prompts; the last of these is for warming up."""
    transformers.utils.logging.set_verbosity_error()
    dtype = "float32" if record.tiny else "bfloat16"
    pair = load_pair(LoadOptions(**given, device=str(record.device), dtype=dtype))
    prompts += [*first_prompts(pair, _PROMPTS, size.limit), (None, warm_prompt(pair))]
    drafted = (settings_of(size.length, gamma) for gamma in (_GAMMA, _LOOKUP_GAMMA))
    played += duels(PairEngine(pair), *drafted)
    return asdict(pair.target_info)


def _play(duel: Duel, size: _Size, prompts: Prompts) -> dict[str, Any]:
    *measured, (_, warm) = prompts
    play([duel], measured, size.repeats, warm)
    return asdict(duel.outcome())


def _plan(record: Record, plan: str, given: dict[str, str]) -> dict[str, Any]:
    """Run it with a limit of time, and say what its rows come to."""
    out = record.folder / f"{plan}.csv"
    words = [*_words(plan, given), "--device", str(record.device), "--out", str(out), "--overwrite"]
    seconds = min(_PLAN_S, record.left_s)
    call(["scripts/run_ablation.py", *words], out.with_suffix(".txt"), seconds, allowed=(0, _STOPPED))
    if not out.is_file():
        raise LeftOut(f"no row in {_PLAN_S:.0f} s")
    frame = load_results(out)
    summary = summarise(frame)
    rows = summary[summary["task"] == ALL][list(_SHOWN)].to_dict("records")
    verdicts = frame["divergence_verdict"].value_counts().to_dict()
    return {"rows": len(frame), "failed": int(frame["failed"].sum()), "verdicts": verdicts, "summary": rows}


def _words(plan: str, given: dict[str, str]) -> list[str]:
    """A plan and its models."""
    if plan != _DRY_PLAN:
        return [plan, "--dtype", "bfloat16", "--limit", str(_PLANS[plan])]
    models = [word for name, value in given.items() for word in (f"--{name}", value)]
    asked = ["--prompt", "say a", "--methods", "target,speculative,mtp", "--length", str(_DRY_LENGTH)]
    return [*asked, "--dtype", "float32", *models]


def _table(record: Record) -> Table:
    """Ratios: theirs over ours of the duels, ours over AR of the plans."""
    table = Table("what", "ratio", "95 % interval", "runs or prompts", "verdict")

    def add(what: str, ratio: float, low: float, high: float, count: int, verdict: str) -> None:
        table.add_row(what, f"{ratio:.2f}", f"{low:.2f} to {high:.2f}", str(count), verdict)

    for name, found in record.found.items():
        if name.startswith("duel"):
            others = f"{found['other_text']} other texts"
            add(name, found["ratio"], found["low"], found["high"], found["runs"], others)
        for row in found["summary"] if name.startswith("plan") else ():
            bounds = row["speedup_low"], row["speedup_high"]
            add(row["configuration"], row["speedup"], *bounds, row["prompts"], row["against_ar"])
    return table
