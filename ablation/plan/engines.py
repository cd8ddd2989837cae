"""The `[[engines]]` tables of a plan: who plays it besides our own loop. No torch is imported here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ablation.plan.grid import Configuration, EngineSide
from ablation.plan.section import Faults, PlanSection, many, one
from engines.spec import KINDS, OURS, TRANSFORMERS, EngineSpec
from engines.tables import DIALECTS
from sampling.methods.tables import AR, METHODS
from utils.errors import UserError, one_of, wrong_value
from utils.files import checked_name
from utils.option import words
from utils.parameter import Parameter, choice

_METHOD = Parameter("methods", None, "", one_of(METHODS), lambda text: METHODS[text].name)
_FIELDS = tuple(field.name for field in fields(EngineSpec) if field.name != "urls")


def read_engines(content: Any, faults: Faults) -> tuple[EngineSpec, ...]:
    """The engines of a file, without those that are wrong."""
    if not isinstance(content, list) or not all(isinstance(entries, dict) for entries in content):
        faults.add("engines: expected an [[engines]] table for each engine", "engines")
        return ()
    specs: list[EngineSpec] = []
    for place, entries in enumerate(content, start=1):
        section = PlanSection(entries, faults, "engines", place)
        spec = _read(section)
        if spec is not None and spec.name in (OURS, *(other.name for other in specs)):
            section.fault(f"name: {spec.name!r} is taken; expected each engine by another name", "name")
        elif spec is not None:
            specs.append(spec)
    return tuple(specs)


def _read(section: PlanSection) -> EngineSpec | None:
    section.allow(_FIELDS)
    missing = [key for key in ("name", "kind") if key not in section.entries]
    if missing:
        section.fault(f"{missing[0]} is missing; expected name and kind", "")
        return None
    values = {name: section.read(name, _reader(name), None) for name in section.entries if name in _FIELDS}
    if isinstance(values.get("url"), tuple):
        values["urls"] = values.pop("url")
    if None in values.values():
        return None
    spec = EngineSpec(**values)
    try:
        spec.check()
    except UserError as error:
        section.fault(str(error), str(error).split()[0].strip(":"))
        return None
    return spec


def _reader(name: str) -> Callable[[Any], Any]:
    if name == "methods":
        return many(_METHOD)
    if name == "kind":
        return one(choice("kind", KINDS[0], "", KINDS))
    read = one(words(name))
    if name == "url":
        return _read_url
    return (lambda value: checked_name(read(value), name)) if name == "name" else read


def _read_url(value: Any) -> Any:
    """An address, or a table of them by method as pairs."""
    if isinstance(value, dict):
        return tuple((one(_METHOD)(method), one(words("url"))(url)) for method, url in value.items())
    return one(words("url"))(value)


def parse_engine(text: str) -> EngineSpec:
    """An engine from a command line: `transformers`, `DIALECT=URL`, or `DIALECT METHOD=URL ...`. Raises `UserError`."""
    name, *pairs = text.split()
    if not pairs and "=" in name:
        name, _, url = name.partition("=")
        if name in DIALECTS and not DIALECTS[name].by_request:
            raise UserError(
                f"--engine {text!r} given, and {name} speculates as it was started: expected an address for each "
                f'method, such as "{name} target=http://HOST:PORT prompt_lookup=http://HOST:PORT"'
            )
        spec = EngineSpec(f"{name} server", "openai", name, url)
    elif not pairs:
        spec = EngineSpec(name, name)
        if name != TRANSFORMERS:
            raise wrong_value(
                "--engine", text, f'transformers, {OURS}=URL, or "DIALECT METHOD=URL ..." of {one_of(DIALECTS)}'
            )
    else:
        urls = tuple((METHODS[method].name, url) for method, _, url in (pair.partition("=") for pair in pairs))
        spec = EngineSpec(name, "openai", name, urls=urls)
    spec.check()
    return spec


def parse_engines(texts: Sequence[str]) -> tuple[EngineSpec, ...]:
    """Engines from a command line. Raises `UserError` for one that is there twice."""
    specs = tuple(map(parse_engine, texts))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--engine: {name} is given twice; expected each once, or a plan, which names them")
    return specs


def sides(
    specs: Sequence[EngineSpec], configurations: Sequence[Configuration], values: Mapping[str, Any]
) -> tuple[EngineSide, ...]:
    """What each engine plays of a plan. Raises `UserError` for what one lacks, by its name, before anything starts."""
    plans = []
    for spec in specs:
        named = spec.played or tuple(METHODS)
        if AR not in named:
            raise UserError(f"engine {spec.name}: methods without {AR}; expected it, which the others are against")
        chosen = tuple(configuration for configuration in configurations if configuration.method in named)
        for configuration in chosen:
            spec.refuse(configuration.method, {**values, **dict(configuration.parameters)})
        plans.append(EngineSide(spec, chosen))
    return tuple(plans)
