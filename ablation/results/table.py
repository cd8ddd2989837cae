"""A record as one flat row of text cells: what a results file holds."""

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ablation.plan.grid import RowKey
from ablation.results.column import keys
from ablation.results.record import Record
from sampling.methods.settings import GENERAL, PARAMETERS
from sampling.methods.tables import METHODS

ColumnKind = Literal["whole", "number", "text", "list"]
_FIRST = ("id", "turn", "task", "configuration", "method")
_LAST = ("error", "text")
_LEFT_OUT = ("settings", "output_ids")


def setting_columns() -> tuple[str, ...]:
    """One column a setting: the general ones, then the parameters of the methods."""
    general = tuple(parameter.name for parameter in GENERAL)
    return (*general, *(name for name in PARAMETERS if name not in METHODS and name not in general))


def columns() -> tuple[str, ...]:
    """All columns of a results file, in order: what was run, its settings, what was measured."""
    placed = (*_FIRST, "repeat", *_LAST, *_LEFT_OUT)
    measured = (name for name in keys(Record) if name not in placed)
    return (*_FIRST, *setting_columns(), "repeat", *measured, *_LAST)


def kinds() -> dict[str, ColumnKind]:
    """What the cells of each column hold, as the record and the settings that they come from declare it."""
    types: dict[str, Any] = {parameter.name: type(parameter.default) for parameter in GENERAL}
    types |= get_type_hints(Record)
    return {name: _kind(types.get(name, str)) for name in columns()}


def _kind(declared: Any) -> ColumnKind:
    """Kind of cell for a type; a whole number that may be unknown is a number, as an empty cell is no whole one."""
    known = set(get_args(declared)) if isinstance(declared, UnionType) else {declared}
    if known == {int}:
        return "whole"
    if known <= {int, float, NoneType}:
        return "number"
    return "list" if any(get_origin(kind) is list for kind in known) else "text"


def row(record: Record) -> dict[str, str]:
    """The cells of a record: unknown is empty, a list is numbers between spaces, a setting that does not matter
    to the method is empty."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: cell(values.get(name, record.settings.get(name))) for name in columns()}


def key(cells: Mapping[str, Any]) -> RowKey:
    """What a row, or a line of a trace, is known by."""
    return RowKey(**{name: kind(cells[name]) for name, kind in get_type_hints(RowKey).items()})


def key_of(record: Record) -> RowKey:
    """What a record is known by, as its row is."""
    return key({name: getattr(record, name, record.settings.get(name)) for name in RowKey._fields})


def cell(value: Any) -> str:
    """A value as a cell holds it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return " ".join(str(entry) for entry in value)
    return str(value)
