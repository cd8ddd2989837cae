"""A results file as a frame: the right types, a number for each block, and AR's part of the same block."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablation.plan.grid import BatchLoad
from ablation.results.manifest import manifest_path, read
from ablation.results.sense import AMOUNTS, TEXTS, first_wrong
from ablation.results.stamp import stamped
from ablation.results.table import kinds, setting_columns
from engines.spec import OURS, UNKNOWN
from sampling.loading.options import WEIGHTS
from sampling.methods.tables import AR
from utils.errors import UserError
from utils.text import shown

# What was generated under the same circumstances: in a block every configuration comes once. One of other weights is
# another block, and so is one of another load, so that nothing is ever measured against AR under other circumstances.
QUESTION = ["id", "turn", "processor_alone", "seed", "repeat", "length"]
ASKED = [*QUESTION, "batch", "rate"]
BLOCK = [*QUESTION, "target_weights", "batch", "rate", "engine"]
NO_TASK = "no task"
_NAMED = ("id", "configuration", "method", "processor")
# What stands for all tasks together in a report, and a task of that name.
_RENAMED = {"all": "task all"}
# What a report reads, beside the settings.
_RUN = ("id", "task", "turn", "configuration", "method", "processor", "seed", "repeat", "length", "lossless")
_COUNTS = ("new_tokens", "rounds", "drafted", "tested", "accepted", "accept_hist", "tested_at", "tokens_by_round")
_MEASURED = ("decode_s", "wall_s", "tokens_per_s", "speedup", "c", "mean_gamma", "mean_normalised_entropy")
_TIMES = ("draft_ms", "verify_ms", "other_ms")
_CAVEATS = ("finish_reason", "divergence_verdict", "error", "cpu_mhz", "other_cores")
NEEDED = (*_RUN, *_COUNTS, *_MEASURED, *_TIMES, *_CAVEATS)
# What files of older versions lack; unknown there.
_BATCHES = ("batch", "rate", "live_rows", "throughput_tps", "e2e_throughput_tps", "tpot_ms", "queued_s", "goodput_rps")
_ENGINES = (
    "engine",
    "engine_version",
    "concurrency",
    "referee",
    "referee_place",
    "referee_behind",
    "host",
    "prefill_shared",
)
_LATER = (
    *(
        "started",
        "min_gamma",
        "max_gamma",
        "target_weights",
        "prompt_tokens",
        "drafted_by_round",
        "ttft_s",
        "capture_s",
        "reread",
    ),
    *(*_BATCHES, *_ENGINES, "joules_per_token", "idle_watts", "energy_of"),
)
_DTYPES = {"whole": np.int64, "number": np.float64, "text": "str", "list": "str"}


def load_results(results: Path, also: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows of a results file, in its order; `also` names further columns, read as text.

    Beside the file's columns: `block`, a number a block; `failed`; `recounted`, where `tested` is not the file's but
    the sum of `tested_at`: older versions counted siblings of a tree as well. Where the target's weights were in
    several formats, or prompts were answered several at a time, `processor` names format and load too, so that each is
    reported by itself; `processor_alone` does not.
    Unknown is NaN.
    Raises `UserError` for a file that cannot be read, is none of ours, is empty or torn, or holds a row twice.
    """
    content = _content(results)
    header = content[: content.find(b"\n")].decode("utf-8", errors="replace").strip().split(",")
    missing = [name for name in (*NEEDED, *also) if name not in header]
    if missing:
        raise UserError(
            f"{str(results)!r} is not a results file: it has no column {', '.join(missing[:5])}; "
            "expected a CSV file that an ablation run wrote"
        )
    settings = [name for name in (*setting_columns(), *_LATER) if name in header and name not in NEEDED]
    known = kinds()
    dtypes: dict[str, Any] = {name: _DTYPES[known[name]] for name in (*NEEDED, *settings)}
    dtypes |= {name: np.float64 for name in settings if known[name] == "whole" and name in _LATER}
    try:
        frame = pd.read_csv(
            io.BytesIO(content),
            usecols=[*dtypes, *also],
            dtype={**dtypes, **dict.fromkeys(also, "str")},
            keep_default_na=False,  # an id may be "NA"
            na_values=[""],
            encoding_errors="replace",
        )
    except (ValueError, OverflowError) as error:
        raise UserError(f"{str(results)!r} is not a results file: {error}") from None
    if frame.empty:
        raise UserError(f"{str(results)!r} holds no row yet; expected a file with at least one finished generation")
    # Only now, from text: read as categories at once, "007" would become 7 and "true" a truth value.
    words = [name for name in dtypes if known[name] == "text"]
    for name in words:  # ids and tasks are others' words: what steers a terminal or breaks a table is escaped
        frame[name] = frame[name].map(shown, na_action="ignore")
    frame["task"] = frame["task"].replace(_RENAMED)
    frame = frame.reindex(columns=[*frame, *(name for name in _LATER if name not in header)])
    frame["target_weights"] = frame["target_weights"].astype(object).fillna(WEIGHTS[0])  # older versions had no other
    frame["engine"] = frame["engine"].astype(object).fillna(OURS)
    frame = frame.fillna({"batch": 1, "rate": 0.0})
    return _placed(frame.astype(dict.fromkeys(words, "category")), results)


def load_manifest(results: Path) -> dict[str, Any] | None:
    """The manifest beside a results file, or None where there is none. Raises `UserError` for a broken one."""
    path = manifest_path(results)
    return read(path) if path.exists() else None


def in_order(frame: pd.DataFrame) -> list[str]:
    """Configurations as they should be listed: AR, then the others as their methods first appear, sorted by name."""
    known = frame[["method", "configuration"]].drop_duplicates().astype(str)
    methods = list(dict.fromkeys(known["method"]))
    places = {name: (name != AR, methods.index(method), _natural(name)) for method, name in known.to_numpy()}
    return sorted(places, key=lambda name: places[name])


def by_load(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each processor at each load, and what to call them; a load is named where there are several."""
    several = rows[["batch", "rate"]].drop_duplicates().shape[0] > 1
    parts = rows.groupby(["processor_alone", "batch", "rate"], observed=True, sort=False)
    for (processor, batch, rate), part in parts:
        load = f", {batch:g} at a time" if several else ""
        yield str(processor) + load + (f", {rate:g} a second" if rate else ""), part


def with_reference(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The same rows with `columns` of AR in the same block, as `ar_...`; NaN where AR has failed."""
    reference = frame[(frame["configuration"] == AR) & ~frame["failed"]].set_index("block")[list(columns)]
    return frame.join(reference.add_prefix("ar_"), on="block")


def _content(results: Path) -> bytes:
    try:
        content = results.read_bytes()
    except OSError as error:
        raise UserError(
            f"results file {str(results)!r} cannot be read: {error.strerror or error}; "
            "expected a CSV file that an ablation run wrote"
        ) from None
    if not content.strip():
        raise UserError(f"{str(results)!r} is empty; expected a CSV file that an ablation run wrote")
    # What the store calls torn: a last line without an end, or one that ends inside quotes.
    if not content.endswith(b"\n") or content.count(b'"') % 2:
        raise UserError(
            f"{str(results)!r} ends in a torn row: a run is still writing it, or was cut off; "
            "expected whole rows, which a run with --resume makes of it"
        )
    return content


def _placed(frame: pd.DataFrame, results: Path) -> pd.DataFrame:
    """Number the blocks, name what has no task, and refuse a generation that is there twice."""
    frame["task"] = frame["task"].cat.add_categories([NO_TASK] * (NO_TASK not in frame["task"].cat.categories))
    frame["task"] = frame["task"].fillna(NO_TASK)
    frame["failed"] = frame["error"].notna()
    _refuse_nonsense(frame, results)
    _name_formats(frame)
    _refuse_damaged(frame, results)
    frame["block"] = frame.groupby(BLOCK, observed=True, sort=False).ngroup()
    _recount(frame)
    _stamp(frame)
    twice = frame.duplicated(["block", "configuration"])
    if twice.any():
        row = frame[twice].iloc[0]
        key_text = json.dumps({name: str(row[name]) for name in ("configuration", *BLOCK)}, ensure_ascii=False)
        raise UserError(f"{str(results)!r} holds a generation twice: {key_text}; expected each one once")
    return frame


def _name_formats(frame: pd.DataFrame) -> None:
    """Where there are several engines, loads or formats, `processor` says which: "greedy, vllm, 4 at a time"."""
    frame["processor_alone"] = frame["processor"]
    if frame["engine"].nunique() > 1:
        names = frame["processor"].astype(str) + ", " + frame["engine"].astype(str)
        frame["processor"] = names.astype("category")
    if frame[["batch", "rate"]].drop_duplicates().shape[0] > 1:
        loads = zip(frame["batch"], frame["rate"], strict=True)
        load_names = [BatchLoad(int(batch), rate or None).text for batch, rate in loads]
        frame["processor"] = (frame["processor"].astype(str) + ", " + load_names).astype("category")
    if frame["target_weights"].nunique() > 1:
        formats = ["" if name == UNKNOWN else f", {name} weights" for name in frame["target_weights"].astype(str)]
        frame["processor"] = (frame["processor"].astype(str) + formats).astype("category")


def _recount(frame: pd.DataFrame) -> None:
    """A position is tested once: files of older versions counted every draft that a tree tried there."""
    sums = {text: sum(map(int, text.split())) for text in frame["tested_at"].dropna().unique()}
    positions = frame["tested_at"].map(sums)
    frame["recounted"] = positions.notna() & ~frame["failed"] & (frame["tested"] != positions)
    frame["tested"] = frame["tested"].where(~frame["recounted"], positions)


def _stamp(frame: pd.DataFrame) -> None:
    """Stamp the name of what is lossy, so that no table, plot or test can show it without."""
    rows = (frame["lossless"] == "false").astype(bool)
    if rows.any():
        names = frame["configuration"].astype(str)
        lossy = rows.groupby([frame["processor"], names], observed=True).transform("any")
        frame["configuration"] = names.where(~lossy, names.map(lambda name: stamped(name, False))).astype("category")


def _refuse_nonsense(frame: pd.DataFrame, results: Path) -> None:
    """Raises `UserError` for words and counts that no run writes."""
    for name in _NAMED:
        if frame[name].isna().any():
            raise UserError(
                f"{str(results)!r}, record {int(frame[name].isna().argmax()) + 2}: no {name} given; expected one"
            )
    words = {name: frame[name].tolist() for name in TEXTS}
    if wrong := first_wrong(words, {name: frame[name].to_numpy(np.float64) for name in AMOUNTS}):
        raise UserError(f"{str(results)!r}, record {wrong[0] + 2}: {wrong[1]}")


def _refuse_damaged(frame: pd.DataFrame, results: Path) -> None:
    """Raises `UserError` for a row that says it did not fail and lacks what every generation has."""
    whole = frame[~frame["failed"]]
    wrong = whole[["new_tokens", "tokens_per_s"]].isna().any(axis=1) | ~(whole["decode_s"] > 0)
    for name in ("accept_hist", "tested_at", "tokens_by_round", "drafted_by_round"):
        texts = whole[name].dropna()
        bad = [text for text in texts.unique() if not all(part.isdigit() for part in text.split())]
        wrong |= whole[name].isin(bad)
    if wrong.any():
        number = int(whole.index[wrong.to_numpy()][0]) + 2
        raise UserError(
            f"{str(results)!r}, record {number}: it names no error, but its counts and times are missing or make no "
            "sense; expected rows as a run wrote them"
        )


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A sorting key under which gamma=8 comes before gamma=10."""
    parts = name.replace("=", " ").replace(",", " ").split()
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
