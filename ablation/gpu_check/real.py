"""The stage `real`: the embedded default on the card, beside transformers and in the plans."""

from functools import partial
from typing import Any

from rich.table import Table

from ablation.gpu_check.calls import call
from ablation.gpu_check.models import save_tiny
from ablation.gpu_check.packed import pack
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.report.load import load_results
from ablation.report.tables.summary import ALL, summarise

_DRY_LENGTH, _DRY_WINDOW = 6, 4096  # the plan's prompts are long in bytes
_LEAST_S, _PLAN_S = 60.0, 150.0
# Prompts of each plan, so that it fits.
_PLANS = {"engines": 6, "trained": 6, "copies": 8}
_DRY_PLAN = "dry_run"
_DRY_PLANS = ("engines", _DRY_PLAN)
_SHOWN = (
    *("processor", "configuration", "prompts", "speedup", "speedup_low", "speedup_high", "against_ar"),
    "tokens_per_s_mean",
)
_STOPPED = 130  # a plan that was asked to stop has reported what it has


def real(record: StageRecord) -> Table:
    """The plans, as scripts/run_ablation.py runs them; `engines` has transformers beside our loop."""
    options = save_tiny(record.work / "tiny", _DRY_WINDOW) if record.tiny else {}
    plans = _DRY_PLANS if record.tiny else tuple(_PLANS)
    for plan in plans:
        record.measure(f"plan: {plan}", partial(_plan, record, plan, options), 0.0 if record.tiny else _LEAST_S)
    pack(record, "real", (record.work / f"{plan}{end}" for plan in plans for end in (".csv", ".txt")))
    return _table(record)


def _plan(record: StageRecord, plan: str, options: dict[str, str]) -> dict[str, Any]:
    """Run it with a limit of time, and say what its rows come to."""
    out = record.work / f"{plan}.csv"
    words = [*_words(plan, options), "--device", str(record.device), "--out", str(out), "--overwrite"]
    seconds = min(_PLAN_S, record.left_s)
    call(["scripts/run_ablation.py", *words], out.with_suffix(".txt"), seconds, allowed=(0, _STOPPED))
    if not out.is_file():
        raise LeftOut(f"no row in {_PLAN_S:.0f} s")
    frame = load_results(out)
    summary = summarise(frame)
    rows = summary[summary["task"] == ALL][list(_SHOWN)].to_dict("records")
    verdicts = frame["divergence_verdict"].value_counts().to_dict()
    return {"rows": len(frame), "failed": int(frame["failed"].sum()), "verdicts": verdicts, "summary": rows}


def _words(plan: str, options: dict[str, str]) -> list[str]:
    """A plan and its models."""
    if not options:
        return [plan, "--dtype", "bfloat16", "--limit", str(_PLANS[plan])]
    models = [word for name, value in options.items() for word in (f"--{name}", value)]
    short = ["--length", str(_DRY_LENGTH), "--dtype", "float32", *models]
    if plan != _DRY_PLAN:
        return [plan, "--limit", "1", *short]
    return ["--prompt", "say a", "--methods", "target,speculative,mtp", *short]


def _table(record: StageRecord) -> Table:
    """Speedups over AR; on another engine over its own."""
    table = Table("plan", "engine", "configuration", "median speedup", "95 % interval", "prompts", "verdict")
    for name, result in record.found.items():
        for row in result["summary"]:
            known = row["speedup_low"] == row["speedup_low"]  # NaN is not
            bounds = f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}" if known else "-"
            cells = f"{row['speedup']:.2f}", bounds, str(row["prompts"]), row["against_ar"]
            table.add_row(name, row["processor"], row["configuration"], *cells)
    return table
