"""From the tables of methods in a plan to its configurations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from ablation.plan.grid import AGAIN, Configuration
from ablation.plan.section import Faults, PlanSection, many, one
from sampling.methods.settings import PARAMETERS, check_bounds
from sampling.methods.tables import AR, METHODS
from utils.errors import UserError, one_of
from utils.parameter import Parameter

_Resolved = tuple[str, tuple[tuple[str, str], ...]]

MOST_CONFIGURATIONS = 10_000

_METHOD = Parameter("method", None, "", one_of(METHODS), lambda text: METHODS[text].name)


@dataclass(frozen=True, slots=True)
class MethodTable:
    """A method with lists of values that multiply out; `place` is its place among the tables, from 1."""

    method: str
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    place: int = 0


def read_tables(content: Any, faults: Faults) -> tuple[MethodTable, ...]:
    """The `[[methods]]` tables of a file, without those that are wrong."""
    if not isinstance(content, list) or not all(isinstance(entries, dict) for entries in content):
        faults.add("methods: expected a [[methods]] table for each method", "methods")
        return ()
    sections = [PlanSection(entries, faults, "methods", place) for place, entries in enumerate(content, start=1)]
    return tuple(table for section in sections if (table := _read_table(section)) is not None)


def _read_table(section: PlanSection) -> MethodTable | None:
    method = section.read("method", one(_METHOD), None)
    if method is None:
        if "method" not in section.entries:
            section.fault(f"method is missing; expected {_METHOD.usage}", "")
        return None
    parameters = {parameter.name: parameter for parameter in METHODS[method].parameters}
    strangers = [key for key in section.entries if key in PARAMETERS and key not in parameters]
    for key in strangers:
        section.fault(foreign(key, method), key)
    section.allow(("method", *parameters, *strangers), shown=("method", *parameters), listed=lister(method))
    values = {key: section.read(key, many(parameters[key]), ()) for key in section.entries if key in parameters}
    return MethodTable(method, values, section.place) if all(values.values()) else None


def lister(method: str) -> str:
    """Who lists a method's parameters, as the end of an error says it."""
    return f"`infer.py methods {method}` lists"


def foreign(name: str, method: str) -> str:
    """Why a setting cannot stand in a method's table."""
    expected = one_of((parameter.name for parameter in METHODS[method].parameters), lister(method))
    whose = owners(name)
    belongs = f"it belongs to {', '.join(whose)}" if whose else "it holds for every method"
    return f"{name} is not a parameter of {method}, {belongs}; expected {expected}"


def unread(name: str, method: str) -> str:
    """Why a parameter that the method has can still not stand in its table."""
    return (
        f"{name} changes nothing: {method} never reads it with the values of this table; "
        f"expected it left out, or the values that it goes with ({lister(method)} them)"
    )


def owners(name: str) -> tuple[str, ...]:
    """The methods that have a parameter."""
    return tuple(m.name for m in METHODS.values() if name in (parameter.name for parameter in m.parameters))


def replace_values(tables: Sequence[MethodTable], name: str, values: tuple[Any, ...]) -> tuple[MethodTable, ...]:
    """The tables with these values of a parameter wherever the method has it. Raises `UserError` where none has."""
    if not any(table.method in owners(name) for table in tables):
        kept = ", ".join(dict.fromkeys(table.method for table in tables)) or "none"
        raise UserError(f"{name}: no method of the plan has it; it belongs to {', '.join(owners(name))}, not {kept}")
    return tuple(
        MethodTable(t.method, {**t.values, name: values}, t.place) if t.method in owners(name) else t for t in tables
    )


def choose_tables(tables: Sequence[MethodTable], methods: Sequence[str]) -> tuple[MethodTable, ...]:
    """The tables of these methods; a method without one gets one with its defaults."""
    kept = [table for table in tables if table.method in methods]
    missing = [name for name in methods if name not in (table.method for table in kept)]
    return (*kept, *(MethodTable(name) for name in missing))


def check_tables(tables: Sequence[MethodTable], values: Mapping[str, Any], faults: Faults) -> tuple[Configuration, ...]:
    """The configurations of all tables; notes those that come twice and values that do not go together.

    `values` holds every setting.
    """
    places: dict[_Resolved, tuple[Configuration, int]] = {}
    try:
        _refuse_many(tables)
    except UserError as error:
        faults.add(str(error), "methods")
        return ()
    for table in tables:
        expanded = list(_expand(table, values))
        for name in _unread(table, [configuration for configuration, _ in expanded], values):
            faults.add(unread(name, table.method), name, "methods", table.place)
        for configuration, resolved in expanded:
            try:
                check_values(configuration, values)
            except UserError as error:
                faults.add(str(error), "", "methods", table.place)
            if resolved in places:
                line = faults.lines.line("", "methods", places[resolved][1])
                message = f"{configuration.name} is already in the table of line {line}; expected each one once"
                faults.add(message, "", "methods", table.place)
            places.setdefault(resolved, (configuration, table.place))
    return tuple(configuration for configuration, _ in places.values())


def multiply(tables: Sequence[MethodTable], values: Mapping[str, Any]) -> tuple[Configuration, ...]:
    """Each table multiplied out, each configuration once. Raises `UserError` for values that do not go together."""
    _refuse_many(tables)
    configurations: dict[_Resolved, Configuration] = {}
    for table in tables:
        for configuration, resolved in _expand(table, values):
            check_values(configuration, values)
            configurations.setdefault(resolved, configuration)
    return tuple(configurations.values())


def _refuse_many(tables: Sequence[MethodTable]) -> None:
    """Raises `UserError` for more configurations than could ever run; counted before the first of them is made."""
    count = sum(prod(map(len, table.values.values())) for table in tables)
    if count > MOST_CONFIGURATIONS:
        raise UserError(
            f"the [[methods]] tables multiply out to {count:,} configurations; expected at most {MOST_CONFIGURATIONS:,}"
        )


def framed(configurations: Sequence[Configuration], control: bool) -> tuple[Configuration, ...]:
    """Plain autoregression, then the others, then plain autoregression once more as the control."""
    others = (configuration for configuration in configurations if configuration.method != AR)
    return (Configuration(AR), *others, *([AGAIN] if control else []))


def _expand(table: MethodTable, values: Mapping[str, Any]) -> Iterator[tuple[Configuration, _Resolved]]:
    """A table's configurations, each with all its parameters as text, by which two of them are the same."""
    for combination in product(*table.values.values()):
        parameters = tuple(zip(table.values, combination, strict=True))
        all_values = {**values, **dict(parameters)}
        shown = tuple((p.name, p.show(all_values[p.name])) for p in METHODS[table.method].parameters)
        yield Configuration(table.method, parameters), (table.method, shown)


def _unread(table: MethodTable, configurations: Sequence[Configuration], values: Mapping[str, Any]) -> Iterator[str]:
    """The parameters of a table that none of its configurations reads: its rows would be told apart by nothing."""
    read = {
        parameter.name
        for configuration in configurations
        for parameter in METHODS[table.method].relevant({**values, **dict(configuration.parameters)})
    }
    yield from (name for name in table.values if name not in read)


def check_values(configuration: Configuration, values: Mapping[str, Any]) -> None:
    """Raises `UserError` where the configuration's values do not go together with all others."""
    check_bounds({**values, **dict(configuration.parameters)}, METHODS[configuration.method].bounds)


def table_of(configuration: Configuration) -> MethodTable:
    """The table that comes to this one configuration."""
    return MethodTable(configuration.method, {name: (value,) for name, value in configuration.parameters})
