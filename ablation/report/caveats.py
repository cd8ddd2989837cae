"""Warnings about the numbers of a report, the most serious first, one sentence each."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ablation.plan.grid import CONTROL
from ablation.report.alike import alike
from ablation.report.tables.cells import percent
from ablation.report.tables.formats import not_compared
from ablation.report.tables.hosts import mixed_hosts
from ablation.report.tables.paired import enough
from ablation.report.tables.summary import ALL
from ablation.results import stamp
from ablation.results.record import DIFFERS
from engines.spec import OURS
from sampling.methods.tables import AR
from utils.device.machine import BUSY_CORES

SPREAD, DRIFT = 0.10, 0.05


def caveats(
    frame: pd.DataFrame, summary: pd.DataFrame, pairs: pd.DataFrame, manifest: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """All warnings of a result; empty if nothing is wrong."""
    whole = frame[~frame["failed"]]
    return (
        *_wrong(whole),
        *_refereed(whole),
        *_failed(frame),
        *_incomplete(frame),
        *_reference(frame),
        *mixed_hosts(frame),
        *not_compared(frame, manifest),
        *_noise(summary),
        *_alike(frame, pairs),
        *_shared_prefills(whole),
        *_recounted(frame),
        *_machine(whole),
        *_captured(whole),
        *_few(summary),
        *_origin(manifest),
    )


def _wrong(whole: pd.DataFrame) -> Iterator[str]:
    wrong = whole[whole["divergence_verdict"] == "BUG"]
    for (engine, name), rows in wrong.groupby(["engine", "configuration"], observed=True):
        runs = f"{len(rows)} run{'s' if len(rows) > 1 else ''}"
        if (whole.loc[whole["engine"] == engine, "referee"] == DIFFERS).any():
            yield (
                f"{engine}: {name} gave other ids than its own AR under greedy in {runs}. Its weights or arithmetic "
                "differ from our target's, so our target cannot check for ties."
            )
        else:
            where = "" if engine == OURS else f"{engine}: "
            yield (
                f"BUG: {where}{name} gave other ids than AR under greedy in {runs}, and no tie explains this; "
                "its speed is meaningless until the fault is fixed."
            )
    lossy = whole.loc[whole["lossless"].astype(str) == "false", "configuration"].astype(str).unique()
    if len(lossy):
        yield f"{stamp.warning(lossy)}."


def _refereed(whole: pd.DataFrame) -> Iterator[str]:
    """Answers of other engines that differ from our target's."""
    for engine, rows in whole[whole["referee"].notna()].groupby("engine", observed=True):
        wrong = rows[rows["referee"] == DIFFERS]
        if len(wrong):
            first = wrong.iloc[0]
            yield (
                f"{engine}: in {len(wrong)} of {len(rows)} greedy answers a token is not our target's best. The first "
                f"is in {first['id']} at position {first['referee_place']:.0f}; the largest gap in logits is "
                f"{wrong['referee_behind'].max():.2g}. The cause is other weights, other arithmetic or a fault."
            )


def _shared_prefills(whole: pd.DataFrame) -> Iterator[str]:
    if (whole["prefill_shared"].astype(str) == "true").any():
        yield (
            "Configurations shared one prefill of a common text (share_prefill): their time to the first "
            "token and their speed with prefill include the seconds of that shared prefill."
        )


def _failed(frame: pd.DataFrame) -> Iterator[str]:
    failed = frame[frame["failed"]]
    if len(failed):
        names = ", ".join(failed["configuration"].astype(str).unique())
        first = failed["error"].iloc[0]
        yield f"{len(failed)} of {len(frame)} runs failed ({names}) and are not counted; the first error: {first}"


def _incomplete(frame: pd.DataFrame) -> Iterator[str]:
    short = 0
    for _, rows in frame.groupby("engine", observed=True):
        sizes = rows.groupby("block")["configuration"].nunique()
        short += int((sizes < rows["configuration"].nunique()).sum())
    if short:
        yield f"{short} of {frame['block'].nunique()} blocks lack a configuration: the run is not finished."


def _reference(frame: pd.DataFrame) -> Iterator[str]:
    """AR does the same work each time, so a different speed shows a different state of the machine."""
    for format, rows in frame.groupby("target_weights", observed=True):
        if (frame["configuration"] == AR).any() and not (rows["configuration"] == AR).any():
            yield f"No row of {AR!r} in {format}: a speedup is relative to AR with the same weights, so there is none."
    whole = frame[~frame["failed"]]
    if (frame["configuration"] == AR).any() and not (whole["configuration"] == AR).any():
        yield "Every run of AR failed: there is no speedup."
        return
    if not (whole["configuration"] == AR).any():
        yield f"No row of {AR!r}: without AR there is no speedup, only a comparison of the configurations."
        return
    plain = whole[whole["configuration"].isin([AR, CONTROL])]
    same = ["id", "processor", "length", "turn", "host"]
    groups = plain.groupby(same, observed=True, dropna=False)["tokens_per_s"]
    spread = ((groups.max() - groups.min()) / groups.median())[groups.size() > 1]
    wide = spread[spread > SPREAD]
    if len(wide):
        every, some = spread.index.get_level_values("id"), wide.index.get_level_values("id")
        yield (
            f"AR itself varies by more than {SPREAD:.0%} on {some.nunique()} of {every.nunique()} prompts, "
            f"the most on {some[int(wide.argmax())]} "
            f"({wide.max():.0%}): the machine's speed was not stable."
        )


def _noise(summary: pd.DataFrame) -> Iterator[str]:
    control = summary[(summary["configuration"] == CONTROL) & (summary["task"] == ALL)]
    for _, row in control.iterrows():
        if row["against_ar"] in ("noise: faster", "noise: slower"):
            yield (
                f"{row['processor']}: a second run of AR has a median speedup of {row['speedup']:.3f} over AR "
                f"({row['speedup_low']:.3f} to {row['speedup_high']:.3f}): differences of that size are noise."
            )


def _alike(frame: pd.DataFrame, pairs: pd.DataFrame) -> Iterator[str]:
    """Configurations with different names and equal rounds: their differences show the noise."""
    for processor in dict.fromkeys(frame["processor"].astype(str)):
        for names in alike(frame[frame["processor"] == processor]):
            known = pairs[(pairs["processor"] == processor) & pairs["a"].isin(names) & pairs["b"].isin(names)]
            ratios = known["ratio"][known["ratio"].notna()]
            sizes = f", here {', '.join(map(percent, ratios))}" if len(ratios) else ""
            yield (
                f"{processor}: {' and '.join(names)} drafted and emitted the same tokens in every round. They are the "
                f"same configuration, and differences in their speed are noise{sizes}."
            )


def _recounted(frame: pd.DataFrame) -> Iterator[str]:
    names = frame.loc[frame["recounted"], "configuration"].astype(str).unique()
    if len(names):
        yield (
            f"An older version made these results, and its alpha of trees counts siblings ({', '.join(names)}): "
            "alpha is recomputed here, with each position counted once."
        )


def _machine(whole: pd.DataFrame) -> Iterator[str]:
    known = whole["other_cores"].dropna()
    share = float((known > BUSY_CORES).mean()) if len(known) else 0.0
    if share:
        yield f"Other programs kept more than {BUSY_CORES} cores busy in {share:.1%} of the runs."
    clock = whole["cpu_mhz"].dropna()
    if len(clock) and (clock.max() - clock.min()) / clock.median() > DRIFT:
        yield f"The processor's clock varied between {clock.min():.0f} and {clock.max():.0f} MHz."


def _captured(whole: pd.DataFrame) -> Iterator[str]:
    """Texts that are answered together have what was captured for all of them: of those nothing is summed up.

    `wall_s` holds it. Rows of versions before that had it beside, from CPUs, where nothing is captured.
    """
    alone = whole[(whole["batch"] == 1) & (whole["engine"] == OURS)]
    seconds = alone["capture_s"].fillna(0.0)
    if seconds.sum() > 0.0:
        whole_s = float(alone["wall_s"].sum())
        yield (
            f"Graphs were captured in {int((seconds > 0.0).sum())} of {len(alone)} runs, for {seconds.sum():.1f} s: "
            f"{seconds.sum() / whole_s:.1%} of the {whole_s:.1f} s that a watch shows (wall_s), and no part of "
            "decoding speeds and speedups."
        )


def _few(summary: pd.DataFrame) -> Iterator[str]:
    fewest = int(summary.loc[summary["task"] == ALL, "prompts"].max())
    if fewest < enough(1):
        noun = "prompt" if fewest == 1 else "prompts"
        yield f"Only {fewest} {noun}: no difference can be shown."


def _origin(manifest: Mapping[str, Any] | None) -> Iterator[str]:
    if manifest is None:
        yield "There is no manifest beside the results: their code, weights and machine are unknown."
        return
    entries = [manifest, manifest["fixed"], *(run for run in manifest["runs"] if isinstance(run, dict))]
    if any(entry.get("uncommitted_changes") for entry in entries):
        yield "The code had uncommitted changes: its commit alone does not reproduce the results."
    for key, word in (("commit", "commits"), ("code", "versions of the code")):
        values = {str(entry[key]) for entry in entries if entry.get(key)}
        if len(values) > 1:
            yield f"The rows come from {len(values)} {word}: {', '.join(sorted(name[:12] for name in values))}."
