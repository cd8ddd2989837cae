"""Results in Spec-Bench's forms (arXiv 2401.07851): an answer file a configuration, and its table.

The table follows its evaluation/speed.py: a question's speed is all its tokens over all its wall time, prompt
included; a task's is the mean over questions; the speedup is a ratio of such means, not a paired one. Two
things differ: AR's tokens are counted like everybody's, not tokenised again, and every seed and repeat counts.
"""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ablation.report.load import in_order, load_results
from ablation.report.markdown import safe, table_lines, warning_lines
from ablation.report.plots.figure import slug
from ablation.report.tables.cells import Table, number, title_of
from sampling.methods.tables import AR
from utils.errors import UserError

OVERALL = "overall"
MULTI_TURN = "mt_bench"
# The categories of MT-Bench, which Spec-Bench's table joins into one task.
_MT_BENCH = frozenset(("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"))
_RUN = ["seed", "repeat"]


def write_spec_bench(results: Path, folder: Path, warnings: tuple[str, ...], formats: tuple[Table, ...] = ()) -> Path:
    """Write `answers/*.jsonl`, spec_bench.md and spec_bench.csv into a folder, and return it.

    warnings, formats: those of the report on the same results; spec_bench.md begins with them.
    Raises `UserError` for a results file that cannot be read and a folder that cannot be written.
    """
    frame = load_results(results, also=("text", "tokens_by_round", "started"))
    # A conversation is an answer only as a whole.
    broken = frame.groupby(["processor", "configuration", "id", *_RUN], observed=True)["failed"].transform("any")
    whole = frame[~broken & (frame["wall_s"] > 0)]
    left_out = len(frame) - len(whole)
    if left_out:
        reason = "with a turn that failed, or took no time"
        warnings = (*warnings, f"{left_out} of {len(frame)} rows are left out here: conversations {reason}.")
    try:
        (folder / "answers").mkdir(parents=True, exist_ok=True)
        for stem, rows in by_configuration(whole):
            with (folder / "answers" / f"{stem}.jsonl").open("w", encoding="utf-8") as file:
                for answer in _answers(rows):
                    print(json.dumps(answer, ensure_ascii=False), file=file)
        table = spec_bench_table(whole)
        table.to_csv(folder / "spec_bench.csv", index=False)
        (folder / "spec_bench.md").write_text(_markdown(table, warnings, formats), encoding="utf-8")
    except OSError as error:
        raise UserError(f"folder {str(folder)!r} cannot be written: {error.strerror or error}") from None
    return folder


def spec_bench_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each processor, configuration and task: mean accepted tokens (AR: 1.00), tokens/s and speedup."""
    tasks = frame["task"].astype(str)
    rows = frame.assign(task=tasks.where(~tasks.isin(_MT_BENCH), MULTI_TURN))
    rows = rows[rows["lossless"].notna()]  # a speedup compares the same work
    rows = pd.concat([rows, rows.assign(task=OVERALL)], ignore_index=True)
    group = ["processor", "configuration", "task"]
    sums = rows.groupby([*group, "id", *_RUN], observed=True)[["new_tokens", "wall_s", "rounds"]].sum()
    speed = (sums["new_tokens"] / sums["wall_s"]).groupby(level=group, observed=True).mean()
    totals = sums.groupby(level=group, observed=True).sum()
    table = pd.DataFrame(
        {"mean_accepted_tokens": totals["new_tokens"] / totals["rounds"], "tokens_per_s": speed}
    ).reset_index()
    reference = table[table["configuration"] == AR].set_index(["processor", "task"])["tokens_per_s"]
    keys = pd.MultiIndex.from_frame(table[["processor", "task"]])
    table["speedup"] = table["tokens_per_s"] / reference.reindex(keys).to_numpy()
    orders = {"processor": list(dict.fromkeys(frame["processor"].astype(str))), "configuration": in_order(frame)}
    orders["task"] = [*(task for task in dict.fromkeys(rows["task"]) if task != OVERALL), OVERALL]
    for name, order in orders.items():
        table[name] = pd.Categorical(table[name].astype(str), order, ordered=True)
    return table.sort_values(group, ignore_index=True).astype(dict.fromkeys(orders, str))


def by_configuration(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(stem, rows) of each configuration under each processor, which the stem names where there are several.

    The stem names a file, and no two are one on a disk that does not tell capitals from small letters.
    """
    several = frame["processor"].nunique() > 1
    taken: set[str] = set()
    for processor in dict.fromkeys(frame["processor"].astype(str)):
        for name in in_order(frame[frame["processor"] == processor]):
            stem = slug(f"{name} {processor}" if several else name)
            while stem.lower() in taken:
                stem += "_"
            taken.add(stem.lower())
            yield stem, frame[(frame["processor"] == processor) & (frame["configuration"] == name)]


def _answers(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One object a question, one choice a seed and repeat, with a turn of the conversation in each place."""
    for question, part in rows.groupby("id", observed=True, sort=False):
        first = part.iloc[0]
        choices = [
            _choice(index, turns.sort_values("turn"))
            for index, (_, turns) in enumerate(part.groupby(_RUN, observed=True))
        ]
        model = f"{first['configuration']}, {first['processor']}"
        yield {
            "question_id": int(str(question)) if str(question).isdecimal() else str(question),
            "category": first["task"],
            # Derived, not drawn: the same results give the same file.
            "answer_id": uuid.uuid5(uuid.NAMESPACE_OID, f"{model}, {question}").hex[:22],
            "model_id": model,
            "choices": choices,
            "tstamp": _seconds(first["started"]),
        }


def _choice(index: int, turns: pd.DataFrame) -> dict[str, Any]:
    by_round = " ".join(turns["tokens_by_round"].fillna(""))
    return {
        "index": index,
        "turns": turns["text"].fillna("").tolist(),
        "decoding_steps": turns["rounds"].astype(int).tolist(),
        "new_tokens": turns["new_tokens"].astype(int).tolist(),
        "wall_time": turns["wall_s"].tolist(),
        "accept_lengths": [int(count) for count in by_round.split()],
    }


def _seconds(started: Any) -> float | None:
    return None if pd.isna(started) else pd.Timestamp(started).timestamp()


def _markdown(table: pd.DataFrame, warnings: tuple[str, ...], formats: tuple[Table, ...]) -> str:
    """Spec-Bench's layout: a row a method, the tasks' speedups, mean accepted tokens, the overall speedup."""
    lines = ["# Spec-Bench layout", "", *warning_lines(warnings)]
    for format in formats:
        lines += [f"## {safe(format.title)}", "", *table_lines(format), "", *map(safe, format.notes), ""]
    for processor, part in table.groupby("processor", sort=False):
        tasks = [task for task in dict.fromkeys(part["task"]) if task != OVERALL]
        headers = ("Models", *tasks, "#Mean Accepted Tokens", "tokens/s", "Overall")
        rows = []
        for name in dict.fromkeys(part["configuration"]):
            by_task = part[part["configuration"] == name].set_index("task")
            *shown, last = (
                f"{value:.2f}x" if value > 0 else "–" for value in by_task["speedup"].reindex([*tasks, OVERALL])
            )
            accepted, speed = by_task["mean_accepted_tokens"][OVERALL], by_task["tokens_per_s"][OVERALL]
            rows.append((title_of(name), *shown, number(accepted), number(speed, 1), last))
        lines += [f"## {safe(str(processor))}", "", *table_lines(Table(str(processor), headers, tuple(rows))), ""]
    doc = "\n".join(line.strip() for line in (__doc__ or "").split("\n\n", 1)[1].splitlines())
    return "\n".join([*lines, doc])
