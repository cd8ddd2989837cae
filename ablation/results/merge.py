"""The shards of a plan as one results file: the same questions, weights and code, and no row twice."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.plan.grid import RowKey
from ablation.plan.shard import Shard
from ablation.results import manifest
from ablation.results.hosts import machine_of, name_host
from ablation.results.store import read_finished, to_text
from ablation.results.table import cell, columns, key
from ablation.results.traces.trace import trace_path
from engines.spec import OURS
from utils.errors import UserError, wrong_value
from utils.files import write_atomically
from utils.text import counted

Row = dict[str, str]
_OF_A_PASS = ("seed", "processor", "length", "grammar")  # what settings of a configuration differ in by pass and prompt
_OWN = ("machine", "shard")  # of what is fixed: what shards may differ in


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of it. missing: what is not there, in words; empty where the plan is whole."""

    rows: int
    hosts: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ShardFile:
    """A shard's file and what its manifest says."""

    path: Path
    shard: Shard
    generations: int
    manifest: dict[str, Any]
    rows: list[Row]


def merge(
    paths: Sequence[Path],
    out: Path,
    partial: bool = False,
    overwrite: bool = False,
    check: Callable[[Path], object] = lambda path: None,
) -> Merged:
    """Write the shards into one file with its manifest, and with a trace where all have one.

    partial: whether shards and rows may be missing. check: reads the numbers of a file that has rows, and raises
    `UserError` for what are none. Raises `UserError` for shards of other grids, weights, code or versions, for a row
    that the plan has not or that is there twice, and where something is missing; nothing is written then.
    """
    if not paths:
        raise UserError("no file given; expected the files of all shards, such as r.1-of-2.csv r.2-of-2.csv")
    if out.exists() and not overwrite:
        raise UserError(f"--out {str(out)!r} exists; give --overwrite to replace it, or another --out")
    if out.resolve() in [path.resolve() for path in paths]:
        raise UserError(f"--out {str(out)!r} is one of the shards; expected another file")
    for number, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise UserError(f"{str(path)!r} is given twice; expected each shard once")
        if not path.is_file():
            raise UserError(f"there is no file {str(path)!r}; expected what a run with --shard K/N wrote")
    files = sorted((_read(path) for path in paths), key=lambda file: file.shard.index)
    for file in files:
        if file.rows:
            check(file.path)
    _refuse_others(files)
    _refuse_twice(files)
    missing = tuple(_missing(files))
    if missing and not partial:
        raise UserError("; ".join(missing) + "; give --partial to merge what is there")
    named = _hosts(files)
    rows = [row for file in files for row in file.rows]
    rows.sort(key=plan_order(files[0].manifest["fixed"]["grid"]))
    try:
        manifest.write(manifest.manifest_path(out), _manifest(files, named))
        _merge_traces(files, trace_path(out))
        write_atomically(out, to_text(rows, columns()))
    except OSError as error:
        raise UserError(f"{str(out)!r} cannot be written: {error.strerror or error}") from None
    return Merged(len(rows), tuple(named), missing)


def _read(path: Path) -> _ShardFile:
    about = manifest.read(manifest.manifest_path(path))
    about_shard = about["fixed"].get("shard")
    if (
        not isinstance(about_shard, dict)
        or not isinstance(about_shard.get("part"), str)
        or type(about_shard.get("generations")) is not int
    ):
        raise UserError(f"{str(path)!r} is no shard; expected files that runs with --shard K/N wrote")
    manifest.refuse_older(about["fixed"], repr(str(path)))
    shard, rows = Shard.parse(about_shard["part"]), read_finished(path, columns())
    for number, row in enumerate(rows, start=2):
        _refuse_foreign(row, about["fixed"]["grid"], f"{str(path)!r}, record {number}")
    return _ShardFile(path, shard, about_shard["generations"], about, rows)


def _refuse_foreign(row: Row, grid: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` for a row that the plan has not. where: what errors call it."""
    try:
        row_key = key(row)
    except ValueError as error:
        raise UserError(f"{where}: {error}; expected a row of the plan") from None
    engines = {side["name"]: side["configurations"] for side in grid.get("engines", ())}
    allowed: dict[str, Collection[Any]] = {
        "id": grid["prompts"],
        "turn": range(1, len(grid["prompts"].get(row_key.id, ()))),  # behind the turns stands the length
        "configuration": engines.get(row_key.engine, grid["configurations"]),
        "processor": grid["processors"],
        "seed": grid["seeds"],
        "repeat": range(grid["repeats"]),
        "target_weights": grid["target_weights"],
        "batch": grid["batches"] or (1,),
        "rate": [*grid["rates"], 0.0],
        "engine": (OURS, *engines),
    }
    for name, values in allowed.items():
        if getattr(row_key, name) not in values:
            raise UserError(f"{where}: {wrong_value(name, getattr(row_key, name), 'a row of the plan')}")
    if row_key.engine == OURS:
        for name, value in grid["configurations"][row_key.configuration].items():
            if name in row and name not in _OF_A_PASS and row[name] != cell(value):
                raise UserError(f"{where}: {wrong_value(name, row[name], f'{cell(value)} in {row_key.configuration}')}")


def _refuse_others(files: Sequence[_ShardFile]) -> None:
    """Raise `UserError` where shards are not of one run of one plan."""
    first = files[0]
    common = _common(first)
    for other in files[1:]:
        words = f"in {first.path.name}", f"in {other.path.name}"
        if first.shard.count != other.shard.count:
            raise UserError(
                f"{str(other.path)!r} is shard {other.shard.text} and {str(first.path)!r} {first.shard.text}: "
                "expected shards of one division"
            )
        if differences := list(manifest.differences_of(common, _common(other), (), words)):
            shown = "\n  ".join(differences[:10])
            raise UserError(
                f"{str(other.path)!r} differs from the other shards, so rows cannot be compared:\n  {shown}"
            )


def _common(file: _ShardFile) -> dict[str, Any]:
    """What all shards have in common."""
    return {name: value for name, value in file.manifest["fixed"].items() if name not in _OWN}


def _refuse_twice(files: Sequence[_ShardFile]) -> None:
    known: dict[RowKey, Path] = {}
    for file in files:
        for row in file.rows:
            row_key = key(row)
            if row_key in known:
                key_text = json.dumps(row_key._asdict(), ensure_ascii=False)
                raise UserError(
                    f"{str(known[row_key])!r} and {str(file.path)!r} both hold {key_text}; expected each row once"
                )
            known[row_key] = file.path


def _missing(files: Sequence[_ShardFile]) -> Iterator[str]:
    count = files[0].shard.count
    if absent := sorted({*range(1, count + 1)} - {file.shard.index for file in files}):
        yield f"{'shards' if len(absent) > 1 else 'shard'} {', '.join(map(str, absent))} of {count} not given"
    for file in files:
        lacking = file.generations - len(file.rows)
        if lacking < 0:
            raise UserError(
                f"{str(file.path)!r} holds {len(file.rows)} rows and the shard has {file.generations}; expected no more"
            )
        if lacking:
            yield f"{str(file.path)!r} lacks {counted(lacking, 'row')}, which the same command with --resume adds"


def _hosts(files: Sequence[_ShardFile]) -> dict[str, Any]:
    """The machines by name, put into the rows; those of one name that are not alike are numbered."""
    machines: dict[str, Any] = {}
    for file in files:
        machine = file.manifest["fixed"].get("machine")
        for row in file.rows:
            row["host"] = name_host(machines, row["host"] or "unnamed", machine)
    return machines


def plan_order(grid: Mapping[str, Any]) -> Callable[[Mapping[str, str]], tuple[int, ...]]:
    """Where a row stands in a run of the whole plan: rows of a prompt stay as they came."""
    engines = [OURS, *(side["name"] for side in grid.get("engines", ()))]
    prompts = {name: place for place, name in enumerate(grid["prompts"])}
    tasks = list(dict.fromkeys(grid.get("tasks", {}).values()))

    def place(row: Mapping[str, str]) -> tuple[int, ...]:
        row_key = key(row)
        run = (
            engines.index(row_key.engine),
            row_key.repeat,
            grid["seeds"].index(row_key.seed),
            grid["processors"].index(row_key.processor),
        )
        each_pass = (*run, tasks.index(grid["tasks"][row_key.id])) if tasks else run
        return each_pass if grid.get("batches") else (*each_pass, prompts[row_key.id])

    return place


def _manifest(files: Sequence[_ShardFile], hosts: Mapping[str, Any]) -> dict[str, Any]:
    """Of all: what they have in common, who ran what, and on what machines."""
    runs = [{**run, "shard": file.shard.text} for file in files for run in file.manifest["runs"]]
    whole = {name: value for name, value in files[0].manifest.items() if name not in ("profile", "runs")}
    whole["fixed"] = _common(files[0]) | {"machine": machine_of(hosts), "shard": None}
    profile = {"profile": files[0].manifest["profile"]} if len(hosts) == 1 and "profile" in files[0].manifest else {}
    return {**whole, **profile, "hosts": dict(hosts), "runs": runs}


def _merge_traces(files: Sequence[_ShardFile], out: Path) -> None:
    """One trace, where each shard has one."""
    traces = [trace_path(file.path) for file in files]
    if all(trace.is_file() for trace in traces):
        write_atomically(out, "".join(trace.read_text(encoding="utf-8") for trace in traces))
    else:
        out.unlink(missing_ok=True)
