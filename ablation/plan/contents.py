"""What a plan file says: every key read and checked; what is wrong is told at once, with its line.

No torch is imported here.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ablation.plan.comparisons import Comparisons, read_comparisons
from ablation.plan.engines import read_engines
from ablation.plan.formats import NAME, read_formats
from ablation.plan.grid import Configuration
from ablation.plan.lines import PlanLines
from ablation.plan.methods_table import MethodTable, check_tables, read_tables
from ablation.plan.prompts.file import Prompt
from ablation.plan.prompts.folder import read_folder
from ablation.plan.prompts.sets import ALL, find_sources, gather
from ablation.plan.section import Faults, PlanSection, many, one
from ablation.plan.slo import Slo
from ablation.plan.traced import Traced, read_traced
from engines.spec import EngineSpec
from sampling.grammar.spelling import GRAMMAR, read_grammar
from sampling.loading.options import LOAD
from sampling.methods.chat_template import KWARGS
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from utils.errors import UserError, wrong_value
from utils.files import checked_name
from utils.option import words
from utils.parameter import LARGEST, ChosenPart, integer, number, toggle

_MOST_RUNS = 1000
_MOST_BYTES = 1_000_000

LENGTH, PROCESSOR, _SEED, CHUNK = (PARAMETERS[name] for name in ("length", "processor", "seed", "prefill_chunk"))
SEEDS = integer("seeds", 1, "number of seeds", minimum=1, maximum=_MOST_RUNS)
REPEATS = integer("repeats", 1, "how often each generation runs", minimum=1, maximum=_MOST_RUNS)
LIMIT = integer("limit", None, "maximum number of prompts", minimum=1, maximum=LARGEST)
BATCH = integer("batch", None, "texts at a time", minimum=1, maximum=_MOST_RUNS)
RATE = number("rate", None, "prompts that arrive a second", above=0.0, maximum=1e6)
SLO = words("slo")
_DIR = words("prompts_dir", "the path of a folder of prompt files")
SHARE_PREFILL = toggle("share_prefill", False, "one prefill of a prompt for all configurations")
_INTERLEAVE = toggle("interleave_engines", False, "all engines take turns on each prompt")
_BY_TASK = toggle("by_task", False, "the prompts of each task by themselves")
_CONTROL = toggle("control", True, "plain autoregression once more: the noise floor")
_VALUES = (
    "name",
    "length",
    "seeds",
    "repeats",
    "processors",
    "prompts",
    "prompts_dir",
    "limit",
    "control",
    "trace",
    "compare",
    "batch",
    "rate",
    "slo",
    "share_prefill",
    "interleave_engines",
    "by_task",
)
_TABLES = ("pair", "settings", "methods", "engines")
ELSEWHERE = {"length": "length", "processor": "processors", "seed": "seeds"}


@dataclass(frozen=True, slots=True)
class PlanContents:
    """A file as it is written, its values parsed. `values` holds every setting; prompts None: not read.

    configurations: of the tables, without the reference.
    """

    name: str
    values: Mapping[str, Any]
    seeds: tuple[int, ...]
    repeats: int
    processors: tuple[ChosenPart, ...]
    prompts: tuple[Prompt, ...] | None
    limit: int | None
    control: bool
    trace: Traced
    compare: Comparisons
    pair: Mapping[str, Any]
    tables: tuple[MethodTable, ...]
    configurations: tuple[Configuration, ...]
    batches: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    slo: Slo | None = None
    engines: tuple[EngineSpec, ...] = ()
    share_prefill: bool = False
    interleave_engines: bool = False
    by_task: bool = False


def read_contents(path: Path, base: Settings, read_prompts: bool) -> PlanContents:
    """The whole file. Raises `UserError`."""
    text = _read_text(path)
    try:
        entries = tomllib.loads(text)
    except RecursionError:
        raise UserError(f"plan {str(path)!r} is not TOML that can be read: nested too deep") from None
    except ValueError as error:  # also a number of thousands of digits
        raise UserError(f"plan {str(path)!r} is not TOML: {error}") from None
    faults = Faults(str(path), PlanLines(text))
    top = PlanSection(entries, faults)
    top.allow((*_VALUES, *_TABLES))
    values = {**base, **_read_settings(_table(top, "settings"), path.parent)}
    values["length"] = top.read("length", one(LENGTH), values["length"])
    tables = read_tables(entries.get("methods", []), faults)
    drafting = tuple(dict.fromkeys(table.method for table in tables if METHODS[table.method].drafts))
    contents = PlanContents(
        name=top.read("name", _name, "") or _name(path.stem),
        values=values,
        seeds=top.read("seeds", _seeds(values["seed"]), (values["seed"],)),
        repeats=top.read("repeats", one(REPEATS), 1),
        processors=top.read("processors", many(PROCESSOR), (values["processor"],)),
        prompts=_read_prompts(top, path.parent) if read_prompts else None,
        limit=top.read("limit", one(LIMIT), None),
        control=top.read("control", one(_CONTROL), True),
        trace=top.read("trace", read_traced, False),
        compare=top.read("compare", partial(read_comparisons, present=drafting), ()),
        pair=_read_pair(_table(top, "pair")),
        tables=tables,
        configurations=check_tables(tables, values, faults),
        batches=top.read("batch", many(BATCH), ()),
        rates=top.read("rate", many(RATE), ()),
        slo=top.read("slo", lambda value: Slo.parse(one(SLO)(value)), None),
        engines=read_engines(entries.get("engines", []), faults),
        share_prefill=top.read("share_prefill", one(SHARE_PREFILL), False),
        interleave_engines=top.read("interleave_engines", one(_INTERLEAVE), False),
        by_task=top.read("by_task", one(_BY_TASK), False),
    )
    faults.check()
    return contents


def _read_text(path: Path) -> str:
    """The file's text. Raises `UserError`; also for a file that the parser, which is slow, would read for minutes."""
    try:
        content = path.read_bytes()
        if len(content) > _MOST_BYTES:
            raise UserError(f"plan {str(path)!r}: {len(content):,} bytes given; expected at most {_MOST_BYTES:,}")
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"plan {str(path)!r} cannot be read: {why}; expected a TOML file") from None


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_value("name", value, "a text")
    return checked_name(value, "name")


def _table(top: PlanSection, key: str) -> PlanSection:
    entries = top.entries.get(key, {})
    if not isinstance(entries, dict):
        top.fault(str(wrong_value(key, entries, f"a [{key}] table")), key)
        entries = {}
    return PlanSection(entries, top.faults, key)


def _read_settings(section: PlanSection, folder: Path) -> dict[str, Any]:
    allowed = [name for name in PARAMETERS if name not in METHODS and name not in ELSEWHERE]
    misplaced = [key for key in section.entries if key in METHODS or key in ELSEWHERE]
    for key in misplaced:
        where = f"at the top of the file, as {ELSEWHERE[key]}" if key in ELSEWHERE else "in a [[methods]] table"
        section.fault(f"{key} is not a setting of all configurations; put it {where}", key)
    section.allow((*allowed, *misplaced), shown=allowed)
    values = {key: section.read(key, _setting(key, folder), None) for key in section.entries if key in allowed}
    return {key: value for key, value in values.items() if value is not None}


def _setting(key: str, folder: Path) -> Callable[[Any], Any]:
    """Reads a setting; the variables of the chat template and a schema may be tables.

    folder: what the path of a grammar begins at.
    """
    parameter = PARAMETERS[key]
    read = partial(read_grammar, beside=folder) if parameter == GRAMMAR else parameter.parse

    def parse(value: Any) -> Any:
        if parameter in (KWARGS, GRAMMAR) and isinstance(value, dict):
            return parameter.checked(value)
        return one(replace(parameter, parse=read))(value)

    return parse


def _read_pair(section: PlanSection) -> dict[str, Any]:
    section.allow(tuple(LOAD))
    values = {key: section.read(key, pair_value(key), None) for key in section.entries if key in LOAD}
    return {key: value for key, value in values.items() if value is not None}


def pair_value(key: str) -> Callable[[Any], Any]:
    """Reads an option of loading; of the target's weights several formats."""
    return read_formats if key == NAME else one(LOAD[key])


def _read_prompts(top: PlanSection, folder: Path) -> tuple[Prompt, ...]:
    def parse(value: Any) -> tuple[Prompt, ...]:
        return gather(find_sources(many(words("prompts", "names of prompt sets and .jsonl files"))(value), folder))

    if "prompts_dir" in top.entries:
        if "prompts" in top.entries:
            top.fault("prompts and prompts_dir are both there; expected one of them", "prompts_dir")
        return top.read("prompts_dir", lambda value: read_folder(one(_DIR)(value), folder), ())
    return top.read("prompts", parse, ()) if "prompts" in top.entries else gather(find_sources([ALL], folder))


def _seeds(first: int) -> Callable[[Any], tuple[int, ...]]:
    """Reads a list of seeds, or how many there are from `first` on."""

    def parse(value: Any) -> tuple[int, ...]:
        return many(_SEED)(value) if isinstance(value, list) else count_seeds(first, one(SEEDS)(value))

    return parse


def count_seeds(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))
