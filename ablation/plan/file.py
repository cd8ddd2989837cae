"""An experiment from a TOML file and the command line, checked as a whole before a model is loaded.

No torch is imported here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.plan.choice import choose_names
from ablation.plan.contents import (
    BATCH,
    CHUNK,
    LENGTH,
    LIMIT,
    PROCESSOR,
    RATE,
    REPEATS,
    SEEDS,
    PlanContents,
    count_seeds,
    pair_value,
    read_contents,
)
from ablation.plan.engines import sides
from ablation.plan.formats import compared
from ablation.plan.grid import Plan
from ablation.plan.methods_table import (
    MethodTable,
    choose_tables,
    framed,
    multiply,
    owners,
    replace_values,
    table_of,
)
from ablation.plan.overrides import Overrides
from ablation.plan.prompts.file import Prompt
from ablation.plan.prompts.folder import read_folder
from ablation.plan.prompts.sets import find_sources, gather
from ablation.plan.section import many, one, unknown
from ablation.plan.slo import Slo
from ablation.plan.traced import FULL, Traced
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from utils.errors import UserError, one_of
from utils.files import checked_path
from utils.option import words
from utils.parameter import Parameter

PLANS = Path(__file__).parent.parent / "plans"
_FLAGS = {"length": "length", "processor": "processor", "seed": "seeds"}


@dataclass(frozen=True, slots=True)
class Experiment:
    """What a plan file asks for. `pair` holds the arguments of `LoadOptions` that were given."""

    name: str
    plan: Plan
    pair: Mapping[str, Any]
    trace: Traced


def plan_names() -> tuple[str, ...]:
    """The built-in plans."""
    return tuple(sorted(path.stem for path in PLANS.glob("*.toml")))


def read_experiment(name_or_path: str, overrides: Overrides | None = None, base: Settings | None = None) -> Experiment:
    """The experiment of a built-in plan or a file, with what the command line says instead.

    `base` holds the settings that the file does not give. Raises `UserError` that names every bad key of
    the file (the first ten) with its line.
    """
    overrides = overrides or Overrides()
    path = _find_plan(name_or_path)
    replaced = bool(_asked(overrides))
    contents = read_contents(path, base or Settings(), read_prompts=not replaced)
    return _override(contents, overrides)


def _find_plan(name: str) -> Path:
    if Path(name).suffix.lower() == ".toml":
        return checked_path(name, "plan")
    if name not in plan_names():
        raise unknown("plan", name, plan_names(), ".toml")
    return PLANS / f"{name}.toml"


def _override(contents: PlanContents, overrides: Overrides) -> Experiment:
    """What the command line says goes before what the file says. Raises `UserError`."""
    values = dict(contents.values)
    tables, options = _choose_tables(contents.tables, overrides)
    values.update(options)
    changed = options or tables != contents.tables
    configurations = multiply(tables, values) if changed else contents.configurations
    values["length"] = _given(LENGTH, overrides.length, values["length"])
    values[CHUNK.name] = _given(CHUNK, overrides.prefill_chunk, values[CHUNK.name])
    pair = {**contents.pair, **{name: pair_value(name)(value) for name, value in overrides.pair.items()}}
    seeds, processors = contents.seeds, contents.processors
    if overrides.seeds is not None:
        seeds = count_seeds(values["seed"], _given(SEEDS, overrides.seeds, 1))
    if overrides.processors:
        processors = many(PROCESSOR)(list(overrides.processors))
    played = framed(configurations, contents.control)
    plan = Plan(
        prompts=_choose_prompts(contents, overrides),
        configurations=played,
        sides=sides(contents.engines, played, values),
        values=values,
        processors=processors,
        seeds=seeds,
        repeats=_given(REPEATS, overrides.repeats, contents.repeats),
        compare=contents.compare,
        formats=compared(pair),
        share_prefill=overrides.share_prefill or contents.share_prefill,
        interleave_engines=contents.interleave_engines,
        by_task=contents.by_task,
        **read_loads(overrides.batch, overrides.rate, overrides.slo, contents),
    )
    traced = FULL if overrides.full_trace else overrides.trace
    traced = contents.trace if traced is None else traced
    refuse_full_trace(traced, plan.batches)
    refuse_chunk(overrides.prefill_chunk, plan.batches)
    if plan.share_prefill and plan.batches:
        raise UserError(
            "share_prefill and batch given; expected one of them: in a batch each prompt is read as it comes"
        )
    return Experiment(contents.name, plan, pair, traced)


def read_loads(
    batch: str | None, rate: str | None, slo: str | None, file: PlanContents | None = None
) -> dict[str, Any]:
    """What a plan is told of batches, by the names of its fields: as an option says, else as the file does.

    Raises `UserError`.
    """
    loads = {
        "batches": file.batches if batch is None and file else _between_commas(BATCH, batch),
        "rates": file.rates if rate is None and file else _between_commas(RATE, rate),
        "slo": file.slo if slo is None and file else None if slo is None else Slo.parse(slo),
    }
    for name in ("rates", "slo"):
        if loads[name] and not loads["batches"]:
            raise UserError(
                f"{name.removesuffix('s')} given; expected batch beside it, how many are answered at a time"
            )
    return loads


def _between_commas(parameter: Parameter, text: str | None) -> tuple[Any, ...]:
    return () if text is None else tuple(many(parameter)([part.strip() for part in text.split(",")]))


def refuse_full_trace(traced: Traced, batches: Sequence[int]) -> None:
    """Raises `UserError` for a full trace of batches, whose rounds are nobody's own."""
    if traced == FULL and batches:
        raise UserError("a full trace and batches: expected one of them; the rounds of batches go into --trace")


def refuse_chunk(rows: int | None, batches: Sequence[int]) -> None:
    """Raises `UserError` for rows of prompts that were given where nobody has rounds beside them."""
    if rows is not None and not batches:
        raise UserError("prefill_chunk given; expected batch beside it, how many are answered at a time")


def _given(parameter: Parameter, value: Any, otherwise: Any) -> Any:
    """A value of the command line within the parameter's limits, or what holds without it."""
    return otherwise if value is None else one(parameter)(value)


def _choose_tables(
    tables: Sequence[MethodTable], overrides: Overrides
) -> tuple[tuple[MethodTable, ...], dict[str, Any]]:
    """The tables after --methods and --set, and the settings that --set gives to all configurations."""
    runs = overrides.runs or (() if tables else overrides.open_runs)
    chosen = tuple(map(table_of, runs)) or tuple(tables)
    if overrides.methods is not None:
        names = choose_names(overrides.methods)
        if not names:
            raise UserError(f"no method to run; expected {one_of(METHODS)}")
        chosen = choose_tables(tables, names)
    if not chosen:
        raise UserError(f"the plan names no method; expected [[methods]] tables or --methods of {', '.join(METHODS)}")
    settings = {}
    for name, text in overrides.parameters().items():
        parameter = PARAMETERS[name]
        if name in METHODS or name in _FLAGS:
            raise UserError(f"{name} is not a parameter of a method; use --{_FLAGS.get(name, 'methods')}")
        if owners(name):
            parts = [part.strip() for part in text.split(parameter.between)]
            chosen = replace_values(chosen, name, many(parameter)(parts))
        else:
            settings[name] = parameter.parse(text)
    return chosen, settings


def _choose_prompts(contents: PlanContents, overrides: Overrides) -> tuple[Prompt, ...]:
    if len(asked := _asked(overrides)) > 1:
        raise UserError(f"{asked[0]} and {asked[1]}: expected one of them")
    if overrides.prompt is not None:
        return (Prompt("prompt", (words("--prompt").parse(overrides.prompt),)),)
    prompts = contents.prompts
    if overrides.prompts_dir is not None:
        prompts = read_folder(overrides.prompts_dir)
    elif prompts is None:
        prompts = gather(find_sources(overrides.prompts, Path()))
    return prompts[: _given(LIMIT, overrides.limit, contents.limit)]


def _asked(overrides: Overrides) -> list[str]:
    """The options that name prompts in place of the file's."""
    options = {
        "--prompt": overrides.prompt is not None,
        "--prompts": bool(overrides.prompts),
        "--prompts-dir": overrides.prompts_dir is not None,
    }
    return [option for option, there in options.items() if there]
