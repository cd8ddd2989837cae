"""The file beside the results that says how they came about, and whether a run may go on with them."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.plan.grid import Plan
from ablation.results.make_record import resolved_settings
from sampling.measure.quality import Quality
from sampling.methods.part import OF_DRAFTER
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import METHODS
from sampling.pair.profile import LatencyProfile
from utils.errors import UserError, wrong_value
from utils.files import write_atomically
from utils.json_text import read_json
from utils.provenance import code_digest, commit, config_digest, machine, versions, weights_digest
from utils.text import quoted

if TYPE_CHECKING:
    from sampling.engine import Engine
    from sampling.pair.model_info import ModelInfo

_SHOWN = 60


def manifest_path(results: Path) -> Path:
    """`name.manifest.json` beside `name.csv`."""
    return results.with_name(f"{results.stem}.manifest.json")


def describe(plan: Plan, engine: "Engine", name: str) -> dict[str, Any]:
    """A new manifest. `fixed` is what changes results: a run that differs in it must not add rows."""
    (head, dirty), about = commit(), engine.describe()
    return {
        "plan": name,
        "commit": head,
        "uncommitted_changes": dirty,
        "compare": [list(pair) for pair in plan.compare],
        "fixed": {
            "grid": _grid(plan, engine),
            "target": _model(about.target),
            "drafter": _model(about.drafter) if about.drafter else None,
            "heads": {kind: _digests(str(about.heads[kind])) for kind in _heads(plan, about.heads)},
            "machine": machine(about.device),
            "versions": versions(),
            "code": code_digest(),
            "shard": {"part": plan.part.name, "generations": plan.generations} if plan.part else None,
        },
        "runs": [],
    }


def read(path: Path) -> dict[str, Any]:
    """A manifest. Raises `UserError` for a file that is none."""
    try:
        content = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # `UserError` is one
        raise UserError(f"manifest {str(path)!r} cannot be read: {error}") from None
    if (
        not isinstance(content, dict)
        or not isinstance(content.get("fixed"), dict)
        or not isinstance(content.get("runs"), list)
    ):
        raise UserError(f"{str(path)!r} is not a manifest")
    try:
        qualities(content)
        profiles(content)
    except UserError as error:
        raise UserError(f"manifest {str(path)!r}: {error}") from None
    return content


def add_quality(manifest: dict[str, Any], format: str, quality: Quality) -> None:
    """Note in a manifest what a format of the target's weights costs in quality; what was noted before is replaced."""
    manifest.setdefault("quality", {})[format] = asdict(quality)


def qualities(manifest: Mapping[str, Any] | None) -> dict[str, Quality]:
    """The quality of each format that a manifest knows; empty for one of an older version, and without a manifest.

    Raises `UserError` for what is no quality.
    """
    known = (manifest or {}).get("quality", {})
    if not isinstance(known, dict):
        raise wrong_value("quality", known, "an object with a format of weights for each key")
    return {format: _quality(format, about) for format, about in known.items()}


def add_profiles(manifest: dict[str, Any], known: Mapping[str, LatencyProfile]) -> None:
    """Note by the format of the target's weights what its forwards and drafts cost, where that was measured."""
    if known:
        manifest["profile"] = {name: profile.as_dict() for name, profile in known.items()}


def profiles(manifest: Mapping[str, Any] | None) -> dict[str, LatencyProfile]:
    """The profile of each format that was in force; empty where nobody had measured, and without a manifest.

    Raises `UserError` for what is no profile.
    """
    known = (manifest or {}).get("profile", {})
    if not isinstance(known, dict):
        raise wrong_value("profile", known, "an object with a format of weights for each key")
    return {format: LatencyProfile.from_dict(about) for format, about in known.items()}


def _quality(format: str, about: Any) -> Quality:
    values = about if isinstance(about, dict) else {}
    for field in fields(Quality):
        value, least = values.get(field.name, ""), int(field.name.endswith("_bytes"))
        if value is None and field.name.endswith(("_low", "_high")):
            continue
        number = type(value) is int or (type(value) is float and field.type is not int and math.isfinite(value))
        if not number or value < least:
            raise wrong_value(f"quality of {quoted(format)}: {field.name}", value, f"a number of {least} or more")
    return Quality(**{field.name: values[field.name] for field in fields(Quality)})


def write(path: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the file as a whole. Raises `UserError` when it cannot be written; the old one then stays."""
    try:
        write_atomically(path, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None


def refuse_other(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise `UserError` where a run would differ from the one before in what changes results.

    Of rows that name their hosts, the machine may change.
    """
    if "hosts" in new and "hosts" not in old:
        raise UserError(
            "--resume: the rows of that file name no hosts; go on without --ray, on the machine that wrote them, "
            "or choose another --out"
        )
    refuse_older(old["fixed"], "--resume: that file")
    several = ("machine",) if "hosts" in old else ()
    before, after = (
        {name: value for name, value in fixed.items() if name not in several}
        for fixed in (old["fixed"], json.loads(json.dumps(new["fixed"])))
    )
    differences = list(differences_of(before, after))
    if differences:
        shown = "\n  ".join(differences[:10])
        raise UserError(
            f"--resume: this run differs from the one that wrote the file, so rows cannot be compared:\n  {shown}\n"
            "resume with the same call on the same code and machine, or choose another --out"
        )


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _grid(plan: Plan, engine: "Engine") -> dict[str, Any]:
    """The plan as plain values, each configuration with all it depends on."""
    from sampling.engine import in_formats  # with torch, which reading manifests does not need

    show = PARAMETERS["processor"].show
    return {
        "configurations": {
            c.name: resolved_settings(c.method, {**plan.values, **dict(c.parameters)}, engine)
            for c in plan.configurations
        },
        "processors": [show(processor) for processor in plan.processors],
        "seeds": list(plan.seeds),
        "repeats": plan.repeats,
        "engines": [
            {**asdict(side.spec), "configurations": [configuration.name for configuration in side.configurations]}
            for side in plan.sides
        ],
        "batches": list(plan.batches),
        "rates": list(plan.rates),
        "slo": plan.slo.text if plan.slo else None,
        "share_prefill": plan.share_prefill,
        "target_weights": list(plan.formats) or [engine.describe().target.stored],
        "compiled": [rounded.describe().target.compiled for rounded in in_formats(engine, plan.formats).values()],
        "prompts": {str(prompt.id): [*prompt.texts, plan.length(prompt)] for prompt in plan.prompts},
        **_grammars(plan),
        **({"interleave_engines": True} if plan.interleave_engines else {}),
        **({"tasks": {str(prompt.id): plan.task_of(prompt) for prompt in plan.prompts}} if plan.by_task else {}),
    }


def _grammars(plan: Plan) -> dict[str, Any]:
    """The grammars of prompts that have one of their own."""
    own = {str(prompt.id): prompt.grammar for prompt in plan.prompts if prompt.grammar is not None}
    return {"grammars": own} if own else {}


def _heads(plan: Plan, heads: Iterable[str]) -> list[str]:
    """The kinds of trained heads that the plan's methods draft with."""
    needed = {METHODS[c.method].needs({**plan.values, **dict(c.parameters)}) or "" for c in plan.configurations}
    return sorted(kind for kind in heads if needed & {kind, f"{OF_DRAFTER}{kind}"})


def _model(info: "ModelInfo") -> dict[str, Any]:
    return {
        **asdict(info),
        "place": Path(info.place).name,
        **(_digests(info.place) if info.place else {"weights": None, "config": None}),
    }


def _digests(place: str) -> dict[str, str | None]:
    """Of a folder: its weights, and what decides the output beside them."""
    return {"weights": weights_digest(place), "config": config_digest(place)}


def refuse_older(fixed: Mapping[str, Any], what: str) -> None:
    """Raises `UserError` for what was written before configs were noted: nobody can say of which model it is."""
    if isinstance(target := fixed.get("target"), dict) and "config" not in target:
        raise UserError(
            f"{what} is of an older version, which noted the target's weights and not its config, tokenizer and "
            "generation defaults: its rows cannot be compared with others; expected a new run, into another file"
        )


def differences_of(
    old: Any, new: Any, path: Sequence[str] = (), words: tuple[str, str] = ("then", "now")
) -> Iterator[str]:
    """What two tables of plain values differ in, a line each. words: when, or where, the first and the second are."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences_of(old.get(name), new.get(name), (*path, name), words)
    elif old != new:
        first, second = (json.dumps(value, ensure_ascii=False) for value in (old, new))
        alike = next((place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
        begin = 0 if alike < _SHOWN // 2 else alike - _SHOWN // 4
        yield f"{'.'.join(path)}: {_short(first, begin)} {words[0]}, {_short(second, begin)} {words[1]}"


def _short(text: str, begin: int) -> str:
    """A part of a long text, from where it begins to differ from another."""
    if len(text) <= _SHOWN:
        return text
    part = text[begin : begin + _SHOWN - 3]
    return f"{'...' if begin else ''}{part}{'...' if begin + len(part) < len(text) else ''}"
